//! Reads a backup as it arrives, in either form, and hands out its items one by one, so that the leader can
//! restore a stream without the whole backup in memory.

use super::archive::{Archive, MAGIC};
use super::files::Files;
use super::s2::{Decoder, Stepped};
use super::{BackupError, Buffer, Item};
use crate::schema::sequence::StreamSeq;

/// The limit on the bytes that one step decompresses, so that a step does not hold up the event loop.
const STEP_BYTES: usize = 32 << 10;

/// Reads a backup of one stream: takes bytes from the client, and hands out items for the restored stream.
#[derive(Debug)]
pub struct Reader {
    stream: String,
    decoder: Decoder,
    plain: Buffer,
    form: Option<Form>,
    /// True once the client has sent all bytes. The backup must then have its end mark.
    finished: bool,
    ended: bool,
    /// The highest number of a message so far. A message with a lower number is an error or a repetition.
    last: StreamSeq,
}

#[derive(Debug)]
enum Form {
    Archive(Archive),
    Files(Box<Files>),
}

/// The result of a step of a reader, which tells the caller the next call.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// The reader has found the next item of the backup.
    Item(Item),
    /// The reader has done a part of its work and has no item yet: the caller continues.
    On,
    /// The reader needs more bytes of the backup: the caller waits for the client.
    Hungry,
}

impl Reader {
    /// Begins to read the backup of the stream with this name. A backup of another stream is an error.
    #[must_use]
    pub fn new(stream: &str) -> Self {
        Self {
            stream: stream.to_owned(),
            decoder: Decoder::default(),
            plain: Buffer::default(),
            form: None,
            finished: false,
            ended: false,
            last: StreamSeq::ZERO,
        }
    }

    /// Adds the next bytes of the backup, as the client sends them.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.ended {
            self.decoder.feed(bytes);
        }
    }

    /// Notes that no more bytes come, so that a cut backup is an error and not a wait.
    pub const fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns the number of bytes that the reader has got and not read yet, so that the caller can make the
    /// client wait.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.decoder.waiting_bytes()
    }

    /// Returns whether the reader has handed out [`Item::End`]. The reader ignores all bytes after that.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Hands out the next item, or does a bounded part of the work before it, so that the event loop does not
    /// stop.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a backup of the stream. The reader is then of no further use,
    /// and the restoration fails.
    pub fn step(&mut self) -> Result<Step, BackupError> {
        if self.ended {
            return Ok(Step::Hungry);
        }
        let item = match &mut self.form {
            Some(Form::Archive(archive)) => archive.next(&mut self.plain)?,
            Some(Form::Files(files)) => files.next(&mut self.plain)?,
            None => {
                if let Some(first) = self.plain.as_slice().first_chunk::<8>() {
                    let form = match first == MAGIC {
                        true => {
                            self.plain.consume(MAGIC.len());
                            Form::Archive(Archive::default())
                        }
                        false => Form::Files(Box::new(Files::new(&self.stream))),
                    };
                    self.form = Some(form);
                    return Ok(Step::On);
                }
                None
            }
        };
        match item {
            Some(Item::Message(message)) => {
                if message.seq <= self.last {
                    return match &self.form {
                        Some(Form::Archive(_)) => Err(BackupError::Contradiction(
                            "the numbers of the messages do not rise",
                        )),
                        // A second record of a message is no error in this form: the reader passes over it,
                        // as nats-server does.
                        _ => Ok(Step::On),
                    };
                }
                self.last = message.seq;
                Ok(Step::Item(Item::Message(message)))
            }
            Some(item) => {
                self.ended = item == Item::End;
                Ok(Step::Item(item))
            }
            None => match self.decoder.step(&mut self.plain, STEP_BYTES)? {
                Stepped::On => Ok(Step::On),
                Stepped::Hungry if self.finished => Err(BackupError::Cut),
                Stepped::Hungry => Ok(Step::Hungry),
            },
        }
    }
}
