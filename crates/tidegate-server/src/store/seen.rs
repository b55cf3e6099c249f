//! What the log holds of a group, gathered from its index when it is opened. Pure.

use tidegate_log::{KIND_LOST, Lsn, RecordInfo};

use super::GROUP;
use super::checkpoint::Header;
use super::error::OpenError;
use crate::replica::records::{HardState, KIND_ENTRY, KIND_HARD_STATE};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Seen {
    hard_state: HardState,
    /// Index and term of the last entry.
    last: (u64, u64),
    /// Where an entry took the place of others: its index and position.
    overwritten: Vec<(u64, Lsn)>,
    /// Where indices are missing: the one that was to come, and the position of the one that came.
    gaps: Vec<(u64, u64, Lsn)>,
}

impl Seen {
    pub(super) fn note(&mut self, info: &RecordInfo) {
        if info.group != GROUP || info.kind == KIND_LOST {
            return;
        }
        match info.kind {
            KIND_HARD_STATE => {
                self.hard_state = HardState {
                    term: info.term,
                    vote: info.index,
                };
            }
            KIND_ENTRY => {
                let next = self.last.0 + 1;
                if info.index < next {
                    self.overwritten.push((info.index, info.lsn));
                } else if info.index > next {
                    self.gaps.push((next, info.index, info.lsn));
                }
                self.last = (info.index, info.term);
            }
            _ => {}
        }
    }

    /// It goes on where a checkpoint ends. Entries that are missing are an error, unless a repair has said so.
    pub(super) fn follow(&mut self, header: &Header, repaired: bool) -> Result<(), OpenError> {
        if header.hard_state.term > self.hard_state.term {
            self.hard_state = header.hard_state;
        }
        for &(from, to, lsn) in &self.gaps {
            let from = from.max(header.index + 1);
            if lsn >= header.next && from < to {
                let text = format!("entries {from} to {} are missing from the log", to - 1);
                if !repaired {
                    return Err(OpenError::Damaged(text));
                }
                tracing::warn!("{text}: a repair gave them up");
            }
        }
        if self.last.0 < header.index {
            self.last = (header.index, header.term);
        }
        Ok(())
    }

    pub(super) const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Index and term of the last entry.
    pub(super) const fn last(&self) -> (u64, u64) {
        self.last
    }

    /// Whether the entry that stands there still does.
    pub(super) fn counts(&self, index: u64, lsn: Lsn) -> bool {
        let over = |&(from, at): &(u64, Lsn)| at > lsn && from <= index;
        !self.overwritten.iter().any(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: u8, index: u64, term: u64, lsn: u64) -> RecordInfo {
        RecordInfo {
            lsn: Lsn::new(lsn),
            group: GROUP,
            kind,
            index,
            term,
            len: 0,
        }
    }

    fn seen(entries: &[(u64, u64)]) -> Seen {
        let mut seen = Seen::default();
        for &(index, lsn) in entries {
            seen.note(&info(KIND_ENTRY, index, 1, lsn));
        }
        seen
    }

    #[test]
    fn a_later_write_of_an_index_takes_the_place_of_it_and_all_after_it() {
        let seen = seen(&[(1, 10), (2, 20), (3, 30), (2, 40), (3, 50)]);
        let counting = [(1, 10), (2, 20), (3, 30), (2, 40), (3, 50)]
            .map(|(index, lsn)| seen.counts(index, Lsn::new(lsn)));
        assert_eq!(counting, [true, false, false, true, true]);
        assert_eq!(seen.last(), (3, 1));
    }

    #[test]
    fn missing_entries_are_an_error_unless_the_checkpoint_has_them_or_a_repair_said_so() {
        let header = |index, next| Header {
            index,
            term: 7,
            next: Lsn::new(next),
            ..Header::default()
        };
        assert!(
            seen(&[(1, 10), (2, 20)])
                .follow(&Header::default(), false)
                .is_ok()
        );
        assert!(seen(&[(5, 50)]).follow(&Header::default(), false).is_err());
        assert!(seen(&[(5, 50)]).follow(&header(4, 50), false).is_ok());
        assert!(seen(&[(5, 50)]).follow(&header(3, 50), false).is_err());
        assert!(
            seen(&[(1, 10), (5, 50), (6, 60)])
                .follow(&header(5, 60), false)
                .is_ok()
        );
        assert!(
            seen(&[(5, 50), (7, 70)])
                .follow(&header(4, 50), false)
                .is_err()
        );
        assert!(
            seen(&[(5, 50), (7, 70)])
                .follow(&header(4, 50), true)
                .is_ok()
        );
        let mut none = seen(&[]);
        none.follow(&header(9, 90), false).unwrap();
        assert_eq!(none.last(), (9, 7));
    }

    #[test]
    fn the_last_hard_state_counts_or_the_checkpoints_if_it_is_later() {
        let mut seen = Seen::default();
        seen.note(&info(KIND_HARD_STATE, 1, 2, 0));
        seen.note(&info(KIND_HARD_STATE, 1, 3, 9));
        let header = |term| Header {
            hard_state: HardState { term, vote: 1 },
            ..Header::default()
        };
        seen.follow(&header(2), false).unwrap();
        assert_eq!(seen.hard_state().term, 3);
        seen.follow(&header(4), false).unwrap();
        assert_eq!(seen.hard_state(), HardState { term: 4, vote: 1 });
    }
}
