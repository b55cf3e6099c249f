//! Reads backups of nats-server before 2.15: a tar file with the files in which that server keeps a stream.
//!
//! ```text
//! meta.inf, meta.sum            the stream's description in JSON, and its hash in hexadecimal digits
//! msgs/<number>.blk             messages, as records
//! msgs/index.db                 an index, from which a reader of all records needs the first number:
//!                               11, version | count of messages, bytes, first number, ..., all of
//!                               variable length | HighwayHash u64
//! obs/<consumer>/meta.inf, meta.sum, o.dat    a consumer: description, hash, state
//! errors.txt                    the error that ended the backup
//! ```

use serde::Deserialize;

use super::consumer::{Named, consumer_of_files};
use super::tar::{File, Next, Tar, padding};
use super::{BackupError, Buffer, FACTS_BYTES_MAX, Item, StreamFacts, number, record, uvarint};
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The name of the index, and (`INDEX_MAGIC`) the byte with which it begins, by which the reader knows the
/// format.
const INDEX: &str = "index.db";
const INDEX_MAGIC: u8 = 11;

/// Reads the files of a backup, and hands out the stream's items in the order of the files.
#[derive(Debug)]
pub(super) struct Files {
    /// The name that the stream in the backup must have. It is also a part of the hashes' keys.
    stream: String,
    tar: Tar,
    inside: Option<Inside>,
    /// True once the reader has read the stream's description. Messages must not come before it.
    known: bool,
    /// The last description that the reader has read, of the stream or of a consumer, until its hash confirms
    /// it.
    described: Option<Described>,
}

/// The file that the reader is reading now, with the bytes that are still left of it.
#[derive(Debug)]
struct Inside {
    part: Part,
    left: u64,
    padding: u64,
}

#[derive(Debug)]
enum Part {
    /// A file of records, with the key of their hashes, which the reader takes record by record.
    Records(highway::Key),
    /// A small file, by its name, which the reader takes as a whole.
    Whole(String),
    Ignored,
}

#[derive(Debug)]
struct Described {
    /// The folder of the description: empty for the stream, or the name of the consumer. The hash must come
    /// from it too.
    of: String,
    json: Vec<u8>,
    checked: bool,
}

impl Files {
    pub(super) fn new(stream: &str) -> Self {
        Self {
            stream: stream.to_owned(),
            tar: Tar::default(),
            inside: None,
            known: false,
            described: None,
        }
    }

    /// Takes the next item out of `plain`; `None` if the item is not there completely and the reader must
    /// wait for more bytes.
    pub(super) fn next(&mut self, plain: &mut Buffer) -> Result<Option<Item>, BackupError> {
        loop {
            let Some(inside) = &mut self.inside else {
                match self.tar.next(plain)? {
                    None => return Ok(None),
                    Some(Next::End) if self.known => return self.end().map(Some),
                    Some(Next::End) => return Err(BackupError::Format("the file meta.inf")),
                    Some(Next::File(file)) => self.inside = Some(self.enter(file)?),
                }
                continue;
            };
            if inside.left == 0 && !matches!(inside.part, Part::Whole(_)) {
                if (plain.len() as u64) < inside.padding {
                    return Ok(None);
                }
                plain.consume(inside.padding as usize);
                self.inside = None;
                continue;
            }
            match &inside.part {
                Part::Ignored => {
                    let len = inside.left.min(plain.len() as u64);
                    if len == 0 {
                        return Ok(None);
                    }
                    plain.consume(len as usize);
                    inside.left -= len;
                }
                Part::Records(key) => {
                    let read = record::read(*key, plain.as_slice(), inside.left)?;
                    let Some((item, len)) = read else {
                        return Ok(None);
                    };
                    plain.consume(len);
                    inside.left -= len as u64;
                    if item.is_some() {
                        return Ok(item);
                    }
                }
                Part::Whole(name) => {
                    let name = name.clone();
                    let Some(bytes) = plain.take(inside.left as usize) else {
                        return Ok(None);
                    };
                    inside.left = 0;
                    inside.part = Part::Ignored;
                    if let Some(item) = self.take(&name, bytes)? {
                        return Ok(Some(item));
                    }
                }
            }
        }
    }

    /// Decides by a file's name whether the reader takes it whole, record by record, or not at all.
    fn enter(&self, file: File) -> Result<Inside, BackupError> {
        let File { name, bytes } = file;
        let part = match name.strip_prefix("msgs/") {
            Some(of) => {
                let number = of.strip_suffix(".blk").and_then(|n| n.parse::<u32>().ok());
                match number {
                    Some(_) if !self.known => {
                        return Err(BackupError::Format("the file meta.inf before the messages"));
                    }
                    Some(number) => {
                        Part::Records(record::key(&format!("{}-{number}", self.stream)))
                    }
                    None if of == INDEX && bytes <= FACTS_BYTES_MAX => Part::Whole(name),
                    None => Part::Ignored,
                }
            }
            None if bytes > FACTS_BYTES_MAX => {
                return Err(BackupError::Large {
                    what: "a description",
                    bytes,
                    max: FACTS_BYTES_MAX,
                });
            }
            None => Part::Whole(name),
        };
        Ok(Inside {
            part,
            left: bytes,
            padding: padding(bytes),
        })
    }

    /// Takes a whole file, and returns the item that this file completes, if any.
    fn take(&mut self, name: &str, bytes: Vec<u8>) -> Result<Option<Item>, BackupError> {
        let (of, file) = match name.strip_prefix("obs/") {
            Some(rest) => rest
                .split_once('/')
                .ok_or(BackupError::Format("a file in a consumer's folder"))?,
            None => ("", name),
        };
        match file {
            _ if name.strip_prefix("msgs/") == Some(INDEX) => self.first(&bytes),
            "errors.txt" => Err(BackupError::Noted(
                String::from_utf8_lossy(&bytes).into_owned(),
            )),
            "meta.inf" => {
                self.described = Some(Described {
                    of: of.to_owned(),
                    json: bytes,
                    checked: false,
                });
                Ok(None)
            }
            "meta.sum" => {
                let key = match of {
                    "" => record::key(&self.stream),
                    of => record::key(&format!("{}/{of}", self.stream)),
                };
                let described = self.described(of)?;
                let hash = record::hash(key, [&described.json]).to_le_bytes();
                let digits: String = hash.iter().map(|b| format!("{b:02x}")).collect();
                if bytes.trim_ascii() != digits.as_bytes() {
                    // The key has the stream's name, so a backup of another stream has another hash, too. The
                    // error for another name comes first, because it helps the client more.
                    self.name_of_stream()?;
                    return Err(BackupError::Checksum("meta.inf"));
                }
                described.checked = true;
                match of.is_empty() {
                    true => self.begin().map(Some),
                    false => Ok(None),
                }
            }
            "o.dat" => {
                let described = self.described(of)?;
                if !described.checked {
                    return Err(BackupError::Format("a consumer's file meta.sum"));
                }
                let consumer = consumer_of_files(Named(of), &described.json, &bytes)?;
                self.described = None;
                Ok(Some(Item::Consumer(Box::new(consumer))))
            }
            _ => Ok(None),
        }
    }

    fn described(&mut self, of: &str) -> Result<&mut Described, BackupError> {
        let described = self.described.as_mut().filter(|d| d.of == of);
        described.ok_or(BackupError::Format("the file meta.inf first"))
    }

    /// Checks the stream's name in the description that the reader has read last, and returns the stream's
    /// time of creation.
    fn name_of_stream(&self) -> Result<Option<u64>, BackupError> {
        #[derive(Deserialize)]
        struct Meta {
            #[serde(rename = "Created")]
            created: Option<Timestamp>,
            name: String,
        }
        let json = self.described.as_ref().filter(|d| d.of.is_empty());
        let Some(json) = json.map(|d| &d.json[..]) else {
            return Ok(None);
        };
        let meta: Meta = serde_json::from_slice(json)
            .map_err(|_| BackupError::Format("the stream's configuration in meta.inf"))?;
        match meta.name == self.stream {
            true => Ok(meta.created.map(Timestamp::as_micros)),
            false => Err(BackupError::Name(meta.name)),
        }
    }

    /// Returns the facts about the stream, once the reader has checked their hash. From now on it accepts
    /// messages.
    fn begin(&mut self) -> Result<Item, BackupError> {
        let created_us = self.name_of_stream()?.filter(|us| *us > 0);
        self.described = None;
        self.known = true;
        Ok(Item::Stream(StreamFacts {
            created_us,
            ..StreamFacts::default()
        }))
    }

    /// Reads the number of the stream's first message from the index. The restored stream drops messages
    /// before that number. Their records may still be there, because a limit that removes messages leaves no
    /// mark.
    fn first(&self, index: &[u8]) -> Result<Option<Item>, BackupError> {
        let Some((content, sum)) = index.split_last_chunk::<8>() else {
            return Ok(None);
        };
        if record::hash(record::key(&self.stream), [content]) != u64::from_le_bytes(*sum) {
            return Err(BackupError::Checksum("index.db"));
        }
        let [INDEX_MAGIC, _, rest @ ..] = content else {
            return Ok(None);
        };
        let mut at = 0;
        let mut first = 0;
        for _ in 0..3 {
            match uvarint(&rest[at..])? {
                Some((value, len)) => (first, at) = (value, at + len),
                None => return Ok(None),
            }
        }
        let first_seq = number(first)?;
        Ok(Some(Item::Stream(StreamFacts {
            first_seq: Some(first_seq).filter(|seq| *seq > StreamSeq::ZERO),
            ..StreamFacts::default()
        })))
    }

    fn end(&self) -> Result<Item, BackupError> {
        match self.described {
            None => Ok(Item::End),
            Some(_) => Err(BackupError::Format("a consumer's file o.dat")),
        }
    }
}
