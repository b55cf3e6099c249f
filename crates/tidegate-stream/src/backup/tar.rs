//! Reads a tar file as it arrives: the names and sizes of its files. The caller reads their content, so that
//! no file has to fit into memory.
//!
//! nats-server writes the POSIX form of 2001, in which an additional file before a file may state the name
//! and the size that do not fit into the header. Two blocks of zeros end a tar file.

use super::{BackupError, Buffer};

/// The length of a header; the writer of a tar file pads the content of each file to a multiple of it.
const BLOCK: usize = 512;
/// The limit on the additional file before a file, in bytes, which bounds the reader's memory.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;

/// A file in a tar file: its name and size, from which the reader knows how to read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// The state of the reader between two files of a tar file.
#[derive(Debug, Default)]
pub(super) struct Tar {
    extension: Extension,
    /// The bytes of the present additional file, if the reader is reading one.
    extends: Option<u64>,
}

/// The part of the next header that an additional file replaces, because the header has too little room.
#[derive(Clone, Debug, Default)]
struct Extension {
    name: Option<String>,
    bytes: Option<u64>,
}

/// The next part of a tar file: a file, or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    File(File),
    End,
}

impl Tar {
    /// Takes the next header out of `plain`, which begins with one; `None` if the reader needs more bytes.
    pub(super) fn next(&mut self, plain: &mut Buffer) -> Result<Option<Next>, BackupError> {
        loop {
            if let Some(bytes) = self.extends {
                let all = bytes + padding(bytes);
                if (plain.len() as u64) < all {
                    return Ok(None);
                }
                self.extension = extension(&plain.as_slice()[..bytes as usize])?;
                plain.consume(all as usize);
                self.extends = None;
            }
            let Some(header) = plain.as_slice().first_chunk::<BLOCK>() else {
                return Ok(None);
            };
            if header.iter().all(|b| *b == 0) {
                return Ok(Some(Next::End));
            }
            check(header)?;
            let bytes = octal(&header[124..136])?;
            let name = match &header[257..262] {
                b"ustar" if header[345] != 0 => {
                    format!("{}/{}", text(&header[345..500])?, text(&header[..100])?)
                }
                _ => text(&header[..100])?.to_owned(),
            };
            let kind = header[156];
            plain.consume(BLOCK);
            match kind {
                b'x' if bytes <= EXTENSION_BYTES_MAX => self.extends = Some(bytes),
                b'0' | 0 => {
                    let extension = std::mem::take(&mut self.extension);
                    return Ok(Some(Next::File(File {
                        name: extension.name.unwrap_or(name),
                        bytes: extension.bytes.unwrap_or(bytes),
                    })));
                }
                _ => return Err(BackupError::Format("only regular files in the tar file")),
            }
        }
    }
}

/// Returns the bytes between the end of a file of this size and the next header, which the reader skips.
pub(super) const fn padding(bytes: u64) -> u64 {
    (BLOCK as u64 - bytes % BLOCK as u64) % BLOCK as u64
}

/// Checks the sum over the bytes of a header, in which the sum itself counts as blanks. A wrong sum means
/// that the file is damaged.
fn check(header: &[u8; BLOCK]) -> Result<(), BackupError> {
    let sum = |at: usize, byte: u8| match at {
        148..156 => u64::from(b' '),
        _ => u64::from(byte),
    };
    let all: u64 = header.iter().enumerate().map(|(at, b)| sum(at, *b)).sum();
    match octal(&header[148..156])? == all {
        true => Ok(()),
        false => Err(BackupError::Checksum("the header of a file")),
    }
}

/// Reads a number in octal digits, which blanks and zero bytes surround, as tar headers have it.
fn octal(field: &[u8]) -> Result<u64, BackupError> {
    let digits = field.iter().copied();
    let mut digits = digits.skip_while(|b| *b == b' ').peekable();
    let mut value: u64 = 0;
    while let Some(digit) = digits.next_if(|b| (b'0'..=b'7').contains(b)) {
        value = value << 3 | u64::from(digit - b'0');
    }
    match digits.all(|b| b == b' ' || b == 0) {
        true => Ok(value),
        false => Err(BackupError::Format("a number in the header of a file")),
    }
}

fn text(field: &[u8]) -> Result<&str, BackupError> {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).map_err(|_| BackupError::Format("a file name in UTF-8"))
}

/// Reads the name and size of the next file from the records of an additional file: `<length of the record>
/// <key>=<value>\n`.
fn extension(mut rest: &[u8]) -> Result<Extension, BackupError> {
    const WRONG: BackupError = BackupError::Format("the records before a file's header");
    let mut all = Extension::default();
    while !rest.is_empty() {
        let blank = rest.iter().position(|b| *b == b' ').ok_or(WRONG)?;
        let len = std::str::from_utf8(&rest[..blank]).ok();
        let len: usize = len.and_then(|l| l.parse().ok()).ok_or(WRONG)?;
        let record = rest.get(blank + 1..len).ok_or(WRONG)?;
        let record = record.strip_suffix(b"\n").ok_or(WRONG)?;
        rest = &rest[len..];
        let record = std::str::from_utf8(record).map_err(|_| WRONG)?;
        let (key, value) = record.split_once('=').ok_or(WRONG)?;
        match key {
            "path" => all.name = Some(value.to_owned()),
            "size" => all.bytes = Some(value.parse().map_err(|_| WRONG)?),
            _ => {}
        }
    }
    Ok(all)
}
