//! The consumers of one stream. The server finds streams by their place in the order of names, not by name:
//! the state asks at the place that it knows, and halves the range if another stream is there now.

use std::time::Duration;

use super::browse::Browse;
use super::lists::Consumer;
use super::request::Page;

/// A stream that the user has opened.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    stream: String,
    pub(crate) consumers: Browse<Consumer>,
    /// The place of the stream, as far as it is known, and the range of places in which it must be.
    place: u64,
    low: u64,
    high: u64,
    /// False for a server that sends all streams at once.
    pages: bool,
    /// True if the server has no such stream any more.
    pub(crate) gone: bool,
}

impl Inside {
    /// Opens the stream; `place` is its place in the server's order, if it is known.
    pub(crate) fn new(stream: &str, place: Option<u64>, streams: u64, pages: bool) -> Self {
        Self {
            stream: stream.to_owned(),
            consumers: Browse::new(),
            place: place.unwrap_or(streams / 2),
            low: 0,
            high: streams,
            pages,
            gone: false,
        }
    }

    pub(crate) fn stream(&self) -> &str {
        &self.stream
    }

    /// Returns the page to ask for.
    pub(crate) const fn page(&self) -> Page {
        match self.pages {
            true => Page {
                offset: self.place,
                limit: 1,
            },
            false => super::whole_page(),
        }
    }

    /// Takes in the consumers, or the name of the stream that is at the place of `page`. `streams` is the
    /// present number of streams. Returns the page to ask for next.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        page: Page,
        found: Result<Vec<Consumer>, Option<String>>,
        streams: u64,
    ) -> Option<Page> {
        if page != self.page() {
            return None;
        }
        let other = match found {
            Ok(consumers) => {
                self.consumers.take_whole(now, consumers);
                self.gone = false;
                (self.low, self.high) = (0, streams);
                return None;
            }
            Err(other) => other,
        };
        match other {
            Some(name) if name.as_str() < self.stream.as_str() => {
                self.low = self.place.saturating_add(1)
            }
            _ => self.high = self.place,
        }
        if !self.pages || self.low >= self.high {
            self.gone = true;
            (self.low, self.high) = (0, streams);
            self.place = streams / 2;
            return None;
        }
        self.place = self.low + (self.high - self.low) / 2;
        Some(self.page())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a server with `streams` until the stream is found or gone. Returns the number of requests.
    fn hunt(inside: &mut Inside, streams: &[String]) -> usize {
        let mut next = Some(inside.page());
        let mut asked = 0;
        while let Some(page) = next {
            asked += 1;
            let there = streams.get(page.offset as usize);
            let found = match there {
                Some(name) if name == inside.stream() => Ok(vec![Consumer::default()]),
                other => Err(other.cloned()),
            };
            next = inside.take(Duration::ZERO, page, found, streams.len() as u64);
        }
        asked
    }

    #[test]
    fn a_stream_is_found_after_it_has_moved() {
        let names: Vec<_> = (0..100_000).map(|n| format!("S{n:06}")).collect();
        let mut inside = Inside::new("S070000", Some(70_000), 100_000, true);
        assert_eq!(hunt(&mut inside, &names), 1);
        assert_eq!(inside.consumers.rows().len(), 1);
        // Another program deletes half of the streams.
        let fewer: Vec<_> = names.iter().step_by(2).cloned().collect();
        let asked = hunt(&mut inside, &fewer);
        assert!((2..=18).contains(&asked) && !inside.gone, "{asked}");
        assert_eq!(hunt(&mut inside, &fewer), 1, "the place is known now");
        assert!(hunt(&mut inside, &names[..10]) <= 18 && inside.gone);
        assert!(hunt(&mut inside, &[]) <= 4 && inside.gone);
        hunt(&mut inside, &names);
        hunt(&mut inside, &names);
        assert!(!inside.gone, "the stream is there again");
    }

    #[test]
    fn an_unknown_place_is_found() {
        let names: Vec<_> = (0..1000).map(|n| format!("S{n:06}")).collect();
        for wanted in ["S000000", "S000999", "S000500"] {
            let mut inside = Inside::new(wanted, None, 1000, true);
            assert!(hunt(&mut inside, &names) <= 11);
            assert!(!inside.gone, "{wanted}");
        }
    }
}
