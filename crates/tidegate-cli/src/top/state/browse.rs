//! A long list of the server, of which the reader keeps a part.
//!
//! In the server's order the list asks for the page around the selected row. A search or another order needs
//! all rows: the list asks for one page after the other (a sweep), and keeps the first rows of its order.
//! Sweeps rest for nine times as long as they take, so that they keep a tenth of a server's monitor busy.

use std::collections::HashMap;
use std::time::Duration;

use super::lists::Row;
use super::request::{PAGE, Page, SWEEP_PAGE};

/// The most rows that a sweep keeps.
const KEPT_MAX: usize = 1000;
/// A sweep rests for so many times its duration.
const REST: u32 = 9;
/// The most characters of a search.
pub(crate) const SEARCH_MAX: usize = 100;

/// A list with a selected row.
#[derive(Clone, Debug)]
pub(crate) struct Browse<R> {
    rows: Vec<R>,
    /// The rows of the server's list before the first of `rows`.
    first: u64,
    total: Option<u64>,
    selected: usize,
    order: usize,
    descending: bool,
    search: String,
    sweep: Option<Sweep<R>>,
    swept: Option<Swept>,
    /// All rows of a list that comes in one answer.
    whole: Option<Vec<R>>,
    /// The counts of the rows at the last answer, and their rates.
    counted: HashMap<String, (f64, Duration)>,
    rates: HashMap<String, f64>,
    /// True if the last row of the awaited page is to be selected, because the user came from below.
    from_below: bool,
    /// True until the first answer to the present search, order or page.
    waits: bool,
}

#[derive(Clone, Debug)]
struct Sweep<R> {
    begun: Duration,
    next: u64,
    best: Vec<R>,
    matched: u64,
}

/// A finished sweep.
#[derive(Clone, Copy, Debug)]
struct Swept {
    ended: Duration,
    took: Duration,
    matched: u64,
}

/// How far a list has come, for the line above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The rows before the first kept row.
    pub(crate) before: u64,
    pub(crate) kept: usize,
    /// The rows that match the search, as far as they are known.
    pub(crate) matched: Option<u64>,
    /// The rows of the whole list, if the server has told it.
    pub(crate) total: Option<u64>,
    /// The rows that a first sweep has seen so far.
    pub(crate) seen: Option<u64>,
}

impl<R: Row> Browse<R> {
    pub(crate) fn new() -> Self {
        Self {
            rows: Vec::new(),
            first: 0,
            total: None,
            selected: 0,
            order: 0,
            descending: false,
            search: String::new(),
            sweep: None,
            swept: None,
            whole: None,
            counted: HashMap::new(),
            rates: HashMap::new(),
            from_below: false,
            waits: true,
        }
    }

    pub(crate) fn rows(&self) -> &[R] {
        &self.rows
    }

    pub(crate) const fn selected(&self) -> usize {
        self.selected
    }

    /// Returns the selected row, and its place in the server's order as far as it is known.
    pub(crate) fn chosen(&self) -> Option<(&R, Option<u64>)> {
        let place = self.first.saturating_add(self.selected as u64);
        let row = self.rows.get(self.selected)?;
        Some((row, (!self.sweeps()).then_some(place)))
    }

    pub(crate) fn search(&self) -> &str {
        &self.search
    }

    /// Returns the name of the order, and whether the list begins with its greatest row.
    pub(crate) fn order(&self) -> (&'static str, bool) {
        let name = R::ORDERS.get(self.order).copied().unwrap_or_default();
        (name, self.descending)
    }

    /// Returns the rate of the row's count.
    pub(crate) fn rate(&self, row: &R) -> Option<f64> {
        self.rates.get(row.key()).copied()
    }

    /// Returns whether the list waits for the first rows of its present form.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    pub(crate) fn extent(&self) -> Extent {
        let sweep = self.sweep.as_ref();
        let first = sweep.filter(|_| self.swept.is_none());
        let matched = match (&self.swept, sweep) {
            (Some(swept), _) => Some(swept.matched),
            (None, Some(sweep)) => Some(sweep.matched),
            (None, None) => None,
        };
        Extent {
            before: if self.sweeps() { 0 } else { self.first },
            kept: self.rows.len(),
            matched: matched.filter(|_| !self.search.is_empty()),
            total: self.total,
            seen: first.map(|sweep| sweep.next),
        }
    }

    /// Returns whether the list needs all rows of the server.
    fn sweeps(&self) -> bool {
        self.order != 0 || self.descending || !self.search.is_empty()
    }

    /// Returns the next page to ask for at a tick; `None` while a sweep rests.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Page> {
        if !self.sweeps() {
            return Some(self.page());
        }
        if let Some(sweep) = &self.sweep {
            return Some(sweep_page(sweep.next));
        }
        let rests = |swept: Swept| now < swept.ended.saturating_add(swept.took * REST);
        if self.swept.is_some_and(rests) {
            return None;
        }
        self.sweep = Some(Sweep {
            begun: now,
            next: 0,
            best: Vec::new(),
            matched: 0,
        });
        Some(sweep_page(0))
    }

    const fn page(&self) -> Page {
        Page {
            offset: self.first,
            limit: PAGE,
        }
    }

    /// Takes in the rows of `page`, and the length of the whole list. Returns the page to ask for next.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        page: Page,
        rows: Vec<R>,
        total: Option<u64>,
    ) -> Option<Page> {
        self.total = total.or(self.total);
        if self.sweeps() {
            return self.take_swept(now, page, rows);
        }
        if page != self.page() {
            return None;
        }
        if rows.is_empty() && self.first > 0 {
            // The list has become shorter than the place of this page. A total that still counts rows here is
            // no help, so the list begins at its start.
            self.first = match self.total {
                Some(total) if total <= self.first => total.saturating_sub(1) / PAGE * PAGE,
                _ => 0,
            };
            self.from_below = true;
            return Some(self.page());
        }
        let below = std::mem::take(&mut self.from_below);
        self.show(rows);
        if below {
            self.selected = self.rows.len().saturating_sub(1);
        }
        self.note(now);
        None
    }

    fn take_swept(&mut self, now: Duration, page: Page, rows: Vec<R>) -> Option<Page> {
        let is_next = |sweep: &mut Sweep<R>| page == sweep_page(sweep.next);
        let mut sweep = self.sweep.take_if(is_next)?;
        let got = rows.len() as u64;
        sweep.next = page.offset.saturating_add(page.limit);
        let wanted = self.search.to_lowercase();
        let fits = |row: &R| wanted.is_empty() || row.contains(&wanted);
        for row in rows.into_iter().filter(fits) {
            sweep.matched += 1;
            sweep.best.push(row);
        }
        self.sort(&mut sweep.best);
        sweep.best.truncate(KEPT_MAX);
        let ends = match self.total {
            // Other servers send their whole list at once. A page may lack some rows that were deleted
            // meanwhile, but not half of them, so a wrong total does not make a sweep endless.
            _ if got < page.limit / 2 || got > page.limit => true,
            Some(total) => sweep.next >= total,
            None => got < page.limit,
        };
        if !ends {
            let next = sweep_page(sweep.next);
            if self.swept.is_none() {
                self.show(sweep.best.clone());
            }
            self.sweep = Some(sweep);
            return Some(next);
        }
        self.swept = Some(Swept {
            ended: now,
            took: now.saturating_sub(sweep.begun),
            matched: sweep.matched,
        });
        self.show(sweep.best);
        self.note(now);
        None
    }

    /// Takes in all rows of a list that comes in one answer.
    pub(crate) fn take_whole(&mut self, now: Duration, rows: Vec<R>) {
        self.total = Some(rows.len() as u64);
        self.whole = Some(rows);
        self.arrange();
        self.note(now);
    }

    /// Shows the rows of a whole list in its present order.
    fn arrange(&mut self) {
        let Some(whole) = &self.whole else { return };
        let wanted = self.search.to_lowercase();
        let fits = |row: &&R| wanted.is_empty() || row.contains(&wanted);
        let mut rows: Vec<R> = whole.iter().filter(fits).cloned().collect();
        self.sort(&mut rows);
        self.swept = Some(Swept {
            ended: Duration::ZERO,
            took: Duration::ZERO,
            matched: rows.len() as u64,
        });
        self.show(rows);
    }

    fn sort(&self, rows: &mut [R]) {
        rows.sort_by(|a, b| {
            let by_order = a.compare(b, self.order);
            let by_order = match self.descending {
                true => by_order.reverse(),
                false => by_order,
            };
            by_order.then_with(|| a.compare(b, 0))
        });
    }

    /// Replaces the rows, and keeps the same row selected where it still is in the list.
    fn show(&mut self, rows: Vec<R>) {
        let key = self.rows.get(self.selected).map(Row::key);
        let same = key.and_then(|key| rows.iter().position(|row| row.key() == key));
        let last = rows.len().saturating_sub(1);
        self.selected = match self.waits {
            true => 0,
            false => same.unwrap_or(self.selected).min(last),
        };
        self.rows = rows;
        self.waits = false;
    }

    /// Notes the counts of the rows, for their rates.
    fn note(&mut self, now: Duration) {
        let mut counted = HashMap::with_capacity(self.rows.len());
        let mut rates = HashMap::with_capacity(self.rows.len());
        for row in &self.rows {
            if let Some((before, at)) = self.counted.get(row.key())
                && now > *at
                && row.counted() >= *before
            {
                let rate = (row.counted() - before) / (now - *at).as_secs_f64();
                rates.insert(row.key().to_owned(), rate);
            }
            counted.insert(row.key().to_owned(), (row.counted(), now));
        }
        (self.counted, self.rates) = (counted, rates);
    }

    /// Moves the selection by so many rows; beyond the page, in the server's order, to the next page. Returns
    /// the page to ask for.
    pub(crate) fn step(&mut self, by: isize) -> Option<Page> {
        let last = self.rows.len().saturating_sub(1);
        let wanted = self.selected.saturating_add_signed(by);
        let underflows = by < 0 && self.selected < by.unsigned_abs();
        let pages = !self.sweeps() && self.whole.is_none();
        let after = self.first.saturating_add(self.rows.len() as u64);
        if pages && wanted > last && self.total.is_some_and(|total| after < total) {
            self.first = after;
            return Some(self.turn(false));
        }
        if pages && underflows && self.first > 0 {
            self.first = self.first.saturating_sub(PAGE);
            return Some(self.turn(true));
        }
        self.selected = wanted.min(last);
        None
    }

    /// Moves the selection to the first or the last row of the list. Returns the page to ask for.
    pub(crate) fn jump(&mut self, to_end: bool) -> Option<Page> {
        let pages = !self.sweeps() && self.whole.is_none();
        let total = self.total.unwrap_or(0);
        let last = total.saturating_sub(1) / PAGE * PAGE;
        let first = if to_end { last } else { 0 };
        // Other servers send more rows than a page.
        let is_here = first == self.first || total <= self.rows.len() as u64;
        if pages && !is_here {
            self.first = first;
            return Some(self.turn(to_end));
        }
        self.selected = match to_end {
            true => self.rows.len().saturating_sub(1),
            false => 0,
        };
        None
    }

    fn turn(&mut self, from_below: bool) -> Page {
        self.from_below = from_below;
        self.waits = true;
        self.page()
    }

    /// Sorts by the next order: numbers begin with the greatest.
    pub(crate) fn sort_next(&mut self) {
        self.order = (self.order + 1) % R::ORDERS.len().max(1);
        self.descending = self.order != 0;
        self.begin();
    }

    /// Reverses the order.
    pub(crate) fn reverse(&mut self) {
        self.descending = !self.descending;
        self.begin();
    }

    /// Searches for rows that contain `text` in any case; an empty text shows all rows.
    pub(crate) fn find(&mut self, text: &str) {
        self.search = text.chars().take(SEARCH_MAX).collect();
        self.begin();
    }

    fn begin(&mut self) {
        (self.sweep, self.swept) = (None, None);
        (self.first, self.waits) = (0, true);
        self.arrange();
    }
}

const fn sweep_page(offset: u64) -> Page {
    Page {
        offset,
        limit: SWEEP_PAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::state::lists::Stream;

    const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// A server with `total` streams, of which the later ones have more messages.
    fn page(page: Page, total: u64) -> Vec<Stream> {
        let end = page.offset.saturating_add(page.limit).min(total);
        let stream = |n: u64| Stream {
            name: format!("S{n:06}"),
            messages: n as f64,
            last_seq: n as f64,
            ..Stream::default()
        };
        (page.offset..end).map(stream).collect()
    }

    /// Asks until the list wants no further page. Returns the number of pages.
    fn fill(list: &mut Browse<Stream>, now: Duration, total: u64) -> usize {
        let mut next = list.due(now);
        let mut pages = 0;
        while let Some(wanted) = next {
            pages += 1;
            next = list.take(now, wanted, page(wanted, total), Some(total));
        }
        pages
    }

    #[test]
    fn the_servers_order_comes_in_pages() {
        let mut list = Browse::<Stream>::new();
        assert!(list.waits());
        assert_eq!(fill(&mut list, s(0), 1000), 1);
        assert_eq!((list.rows().len(), list.selected()), (128, 0));
        assert_eq!(list.step(127), None);
        let next = list.step(1).unwrap();
        assert_eq!((next.offset, next.limit), (128, PAGE));
        assert!(list.waits());
        assert_eq!(list.take(s(1), next, page(next, 1000), Some(1000)), None);
        assert_eq!(list.chosen().unwrap().0.name, "S000128");
        let back = list.step(-1).unwrap();
        list.take(s(1), back, page(back, 1000), Some(1000));
        assert_eq!(list.chosen().unwrap(), (&page(back, 1000)[127], Some(127)));
        let last = list.jump(true).unwrap();
        list.take(s(1), last, page(last, 1000), Some(1000));
        assert_eq!(list.chosen().unwrap().0.name, "S000999");
        assert_eq!(list.step(1), None, "the list ends here");
        // The list shrinks while its last page is shown.
        let due = list.due(s(2)).unwrap();
        let again = list.take(s(2), due, page(due, 200), Some(200)).unwrap();
        list.take(s(2), again, page(again, 200), Some(200));
        assert_eq!(list.chosen().unwrap().0.name, "S000199");
        assert_eq!(list.jump(false).unwrap().offset, 0);
    }

    #[test]
    fn another_order_needs_all_rows_once() {
        let mut list = Browse::<Stream>::new();
        fill(&mut list, s(0), 100_000);
        list.sort_next();
        assert_eq!(list.order(), ("messages", true));
        assert_eq!(fill(&mut list, s(1), 100_000), 196);
        assert_eq!(list.rows().len(), KEPT_MAX);
        assert_eq!(list.rows()[0].name, "S099999");
        assert_eq!(list.extent().total, Some(100_000));
        // The answer to a page of the old order comes late.
        let old = Page {
            offset: 0,
            limit: PAGE,
        };
        assert_eq!(list.take(s(2), old, page(old, 5), Some(5)), None);
        assert_eq!(list.rows()[0].name, "S099999");
    }

    #[test]
    fn a_search_shows_its_first_finds_at_once_and_rests_later() {
        let mut list = Browse::<Stream>::new();
        list.find("S00000");
        let first = list.due(s(1)).unwrap();
        let next = list
            .take(s(2), first, page(first, 2000), Some(2000))
            .unwrap();
        assert_eq!(list.rows().len(), 10);
        assert_eq!(
            (list.extent().seen, list.extent().matched),
            (Some(512), Some(10))
        );
        assert_eq!(list.due(s(2)), Some(next), "the same page until it came");
        list.step(3);
        let mut next = Some(next);
        while let Some(wanted) = next {
            next = list.take(s(3), wanted, page(wanted, 2000), Some(2000));
        }
        assert_eq!(
            list.chosen().unwrap().0.name,
            "S000003",
            "the selection stays"
        );
        assert_eq!(
            (list.extent().seen, list.extent().matched),
            (None, Some(10))
        );
        assert_eq!(
            list.due(s(20)),
            None,
            "the sweep took 2 s and rests for 18 s"
        );
        assert!(list.due(s(21)).is_some());
        assert_eq!(list.rows().len(), 10, "the old rows stay meanwhile");
    }

    #[test]
    fn a_server_that_sends_all_at_once_is_read_once() {
        let mut list = Browse::<Stream>::new();
        list.find("s");
        let first = list.due(s(0)).unwrap();
        let all = Page {
            offset: 0,
            limit: 3000,
        };
        assert_eq!(list.take(s(0), first, page(all, 3000), None), None);
        assert_eq!(list.extent().matched, Some(3000));
        let mut list = Browse::<Stream>::new();
        let first = list.due(s(0)).unwrap();
        list.take(s(0), first, page(all, 3000), Some(3000));
        assert_eq!(list.jump(true), None);
        assert_eq!(list.chosen().unwrap().0.name, "S002999");
    }

    #[test]
    fn rows_have_rates() {
        let mut list = Browse::<Stream>::new();
        let mut rows = page(
            Page {
                offset: 0,
                limit: 2,
            },
            2,
        );
        list.take_whole(s(0), rows.clone());
        rows[1].last_seq += 30.0;
        list.take_whole(s(3), rows.clone());
        assert_eq!(list.rate(&rows[1]), Some(10.0));
        rows[1].last_seq = 0.0;
        list.take_whole(s(4), rows.clone());
        assert_eq!(list.rate(&rows[1]), None, "another stream of this name");
    }

    #[test]
    fn a_whole_list_is_sorted_and_searched_here() {
        let mut list = Browse::<Stream>::new();
        list.take_whole(
            s(0),
            page(
                Page {
                    offset: 0,
                    limit: 9,
                },
                9,
            ),
        );
        list.sort_next();
        assert_eq!(list.rows()[0].name, "S000008");
        list.find("3");
        assert_eq!(list.rows().len(), 1);
        list.find("\u{130}x");
        assert_eq!((list.rows().len(), list.selected()), (0, 0));
        assert_eq!(list.step(5), None);
        assert!(list.chosen().is_none());
    }
}
