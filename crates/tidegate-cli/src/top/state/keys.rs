//! The meaning of keys.

use super::boundaries::Boundary;
use super::browse::{Browse, SEARCH_MAX};
use super::inside::Inside;
use super::lists::Row;
use super::request::{Page, Request};
use super::{Key, State, View, WINDOWS};

/// The rows that the keys for a page move by.
const PAGE_ROWS: isize = 20;

/// A movement of the selection.
#[derive(Clone, Copy)]
enum Move {
    By(isize),
    ToStart,
    ToEnd,
}

impl State {
    /// Takes in a key. Returns true if the user wants to end the program.
    pub(super) fn handle_key(&mut self, key: Key) -> bool {
        if key == Key::Interrupt {
            return true;
        }
        if let Some(typed) = self.typed.take() {
            self.handle_typed(typed, key);
            return false;
        }
        if self.help {
            // Each key closes the help; the keys that leave do no more than that.
            self.help = false;
            if matches!(key, Key::Escape | Key::Enter | Key::Char('?' | 'q' | ' ')) {
                return false;
            }
        }
        match key {
            Key::Char('q') => return true,
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('p' | ' ') => self.pause(),
            Key::Char(digit @ '1'..='5') => {
                self.show(View::ALL[digit as usize - '1' as usize]);
            }
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(View::ALL.len() - 1),
            Key::Char('/') if self.searches() => self.typed = Some(String::new()),
            Key::Char('s') => self.arrange(
                |list| list.sort_next(),
                |list| list.sort_next(),
                |list| list.sort_next(),
            ),
            Key::Char('r') => self.arrange(
                |list| list.reverse(),
                |list| list.reverse(),
                |list| list.reverse(),
            ),
            Key::Char('+') => self.widen(true),
            Key::Char('-') => self.widen(false),
            Key::Up | Key::Char('k') => self.go(Move::By(-1)),
            Key::Down | Key::Char('j') => self.go(Move::By(1)),
            Key::PageUp => self.go(Move::By(-PAGE_ROWS)),
            Key::PageDown => self.go(Move::By(PAGE_ROWS)),
            Key::Home | Key::Char('g') => self.go(Move::ToStart),
            Key::End | Key::Char('G') => self.go(Move::ToEnd),
            Key::Enter => self.enter(),
            Key::Escape => self.leave(),
            _ => {}
        }
        false
    }

    /// Returns whether the present view has a list that the user can search.
    pub(crate) const fn searches(&self) -> bool {
        matches!(self.view, View::Streams | View::Connections)
    }

    /// Returns the search of the present list.
    pub(crate) fn search(&self) -> &str {
        match (self.view, &self.inside) {
            (View::Streams, Some(inside)) => inside.consumers.search(),
            (View::Streams, None) => self.streams.search(),
            (View::Connections, _) => self.connections.search(),
            _ => "",
        }
    }

    fn handle_typed(&mut self, mut typed: String, key: Key) {
        match key {
            Key::Escape => return,
            Key::Enter => {
                self.find(&typed);
                return;
            }
            // One more press at the beginning of the text leaves the search.
            Key::Backspace if typed.is_empty() => return,
            Key::Backspace => {
                typed.pop();
            }
            Key::Char(c) if typed.chars().count() < SEARCH_MAX => typed.push(c),
            _ => {}
        }
        self.typed = Some(typed);
    }

    fn find(&mut self, text: &str) {
        self.arrange(
            |list| list.find(text),
            |list| list.find(text),
            |list| list.find(text),
        );
    }

    /// Applies a change to the present list, and asks for its rows.
    fn arrange(
        &mut self,
        streams: impl FnOnce(&mut Browse<super::lists::Stream>),
        consumers: impl FnOnce(&mut Browse<super::lists::Consumer>),
        connections: impl FnOnce(&mut Browse<super::lists::Connection>),
    ) {
        match (self.view, &mut self.inside) {
            (View::Streams, Some(inside)) => consumers(&mut inside.consumers),
            (View::Streams, None) => streams(&mut self.streams),
            (View::Connections, _) => connections(&mut self.connections),
            _ => return,
        }
        self.refresh();
        if self.paused.is_some() && self.inside.is_none() {
            // The user asks for other rows, which a pause does not have.
            let now = self.now;
            let page = match self.view {
                View::Streams => self.streams.due(now).map(Request::Streams),
                _ => self.connections.due(now).map(Request::Connections),
            };
            self.turn_to(page);
        }
    }

    fn pause(&mut self) {
        match self.paused.take() {
            Some(_) => self.refresh(),
            None => {
                self.paused = Some(self.now);
                self.queue.clear();
            }
        }
    }

    fn show(&mut self, view: View) {
        if self.view == view {
            return;
        }
        self.view = view;
        self.refresh();
    }

    fn turn(&mut self, by: usize) {
        let at = View::ALL.iter().position(|view| *view == self.view);
        let next = (at.unwrap_or(0) + by) % View::ALL.len();
        self.show(View::ALL[next]);
    }

    fn widen(&mut self, wider: bool) {
        if self.view != View::Boundaries {
            return;
        }
        let at = WINDOWS.iter().position(|w| *w == self.window).unwrap_or(0);
        let next = match wider {
            true => (at + 1).min(WINDOWS.len() - 1),
            false => at.saturating_sub(1),
        };
        if next != at {
            self.window = WINDOWS[next];
            self.refresh();
        }
    }

    fn go(&mut self, to: Move) {
        let page = match (self.view, &mut self.inside) {
            (View::Boundaries, _) => {
                self.go_boundary(to);
                None
            }
            (View::Streams, Some(inside)) => {
                moved(&mut inside.consumers, to);
                None
            }
            (View::Streams, None) => moved(&mut self.streams, to).map(Request::Streams),
            (View::Connections, _) => moved(&mut self.connections, to).map(Request::Connections),
            (View::Overview | View::Cluster, _) => None,
        };
        self.turn_to(page);
    }

    fn go_boundary(&mut self, to: Move) {
        let (Some((at, _)), Some(all)) = (self.chosen_boundary(), &self.boundaries) else {
            return;
        };
        let next = match to {
            Move::By(by) => at.saturating_add_signed(by).min(all.len() - 1),
            Move::ToStart => 0,
            Move::ToEnd => all.len() - 1,
        };
        self.boundary = all.get(next).map(|b: &Boundary| b.name.clone());
    }

    fn enter(&mut self) {
        if self.view != View::Streams || self.inside.is_some() {
            return;
        }
        let Some((stream, place)) = self.streams.chosen() else {
            return;
        };
        let total = self.streams.extent().total.unwrap_or(0);
        let inside = Inside::new(&stream.name, place, total, self.is_tidegate());
        let page = Request::Consumers(inside.page());
        self.inside = Some(inside);
        self.turn_to(Some(page));
    }

    fn leave(&mut self) {
        if !self.search().is_empty() {
            self.find("");
        } else if self.view == View::Streams && self.inside.take().is_some() {
            self.refresh();
        }
    }
}

fn moved<R: Row>(list: &mut Browse<R>, to: Move) -> Option<Page> {
    match to {
        Move::By(by) => list.step(by),
        Move::ToStart => list.jump(false),
        Move::ToEnd => list.jump(true),
    }
}
