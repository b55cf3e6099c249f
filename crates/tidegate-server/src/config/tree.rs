//! Reads configuration text into a tree of keys, values and line numbers, from nats-server's syntax or from
//! TOML.
//!
//! nats-server's syntax has `key: value`, `key = value` or `key value`; maps in braces, lists in brackets;
//! comments after `#` and `//`; strings bare, quoted or in a `( block )`, with the escapes `\n`, `\t`, `\r`,
//! `\"`, `\\` and `\x41` in bare and in double-quoted ones; integers with `k`, `kb`, `m`, ...;
//! `$NAME`, which is a key defined before in this map or an enclosing one, or an environment variable; and
//! `include 'file'`. JSON is this syntax in braces. This module knows only the syntax; [`super::apply`] knows
//! the keys. The reader bounds the depth of maps and includes, so that no text makes it hang or overflow its
//! stack.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// The greatest depth of maps, lists and included files within each other that the reader accepts, so that
/// its stack does not overflow.
const DEPTH_MAX: usize = 32;
/// The bytes that end a bare word.
const WORD_ENDS: &[u8] = b" \t\r\n;,]}";

/// A value that the reader found in a configuration file, with its line for error messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The value as the reader understood it, for the code of the setting.
    pub value: Value,
    /// The line of the value in the file, counted from 1, which an error names to the operator.
    pub line: usize,
    /// True if a variable refers to the value. The server then does not require that the value's key is a
    /// setting, because operators define variables as keys.
    pub referenced: bool,
}

/// The value of a key in a configuration file, as the reader parsed it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, which the reader found as a quoted string, a block, or a bare word that has no other meaning.
    Text(String),
    /// A whole number without a suffix.
    Integer(i64),
    /// A number of bytes or of things with a suffix. The reader has multiplied the number by it: 1024 for
    /// `1kb`.
    Size(i64),
    /// A number with a fraction.
    Float(f64),
    /// A truth value, which the reader found as `true`, `yes`, `on` or an opposite of them.
    Bool(bool),
    /// A list: `[...]` in the file.
    List(Vec<Item>),
    /// A map: `{...}` in the file.
    Map(Map),
}

/// The keys of a map in a configuration file with their values, in the order of the file. If a key occurs
/// twice, the later value counts.
pub type Map = Vec<(String, Item)>;

/// The error that tells the operator where a text violates the syntax, or which setting is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The line of the error in the file, counted from 1; 0 if the error belongs to no line. With it the
    /// operator finds the place.
    pub line: usize,
    /// The text of the error for people, without the line.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// Gives the reader the values of `$NAME` and `include`: from the environment and the file system, or, in a
/// test, from a fake.
pub trait Outside {
    /// Returns the value of an environment variable; `None` if it is not set. The reader asks for it when a
    /// text has `$NAME`.
    fn variable(&self, name: &str) -> Option<String>;
    /// Returns the text of a file that a configuration includes, so that the reader goes on in it.
    ///
    /// # Errors
    /// The reason why the file cannot be read.
    fn include(&self, path: &Path) -> Result<String, String>;
}

/// The environment of this process, and the files beside the configuration file, from which the server reads.
#[derive(Clone, Debug)]
pub struct System {
    /// The directory of the configuration file, to which the paths of includes are relative.
    pub directory: PathBuf,
}

impl Outside for System {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn include(&self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(self.directory.join(path)).map_err(|e| e.to_string())
    }
}

/// Reads a configuration text in nats-server's syntax into a tree, from which `apply` makes settings.
///
/// # Errors
/// The text violates the syntax. The error names the line.
pub fn read_nats(text: &str, outside: &dyn Outside) -> Result<Map, SyntaxError> {
    let mut trail = Vec::new();
    let mut reader = Reader {
        text: without_mark(text),
        at: 0,
        line: 1,
        outside,
        trail: &mut trail,
    };
    // JSON is nats-server's syntax within one pair of braces, so the reader also accepts a text in braces.
    reader.skip(b" \t\r\n");
    let braced = reader.peek() == Some(b'{');
    if !braced {
        return reader.map(false, 0, &mut Vec::new());
    }
    reader.at += 1;
    let map = reader.map(true, 0, &mut Vec::new())?;
    reader.skip(b" \t\r\n");
    match reader.peek() {
        None => Ok(map),
        Some(_) => Err(reader.error("expected nothing after the closing `}`")),
    }
}

/// Reads a configuration text in TOML into a tree, from which `apply` makes settings.
///
/// # Errors
/// The text is not TOML. The error names the line.
pub fn read_toml(text: &str) -> Result<Map, SyntaxError> {
    let text = without_mark(text);
    let line = |offset: usize| {
        1 + text.as_bytes()[..offset.min(text.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    };
    let table = toml::de::DeTable::parse(text).map_err(|e| SyntaxError {
        line: e.span().map_or(0, |s| line(s.start)),
        message: e.message().into(),
    })?;
    toml_map(table.get_ref(), &line)
}

/// Removes the byte-order mark that some editors put before a text, because it is no part of the
/// configuration.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn toml_map(
    table: &toml::de::DeTable<'_>,
    line: &dyn Fn(usize) -> usize,
) -> Result<Map, SyntaxError> {
    let entry = |(key, value): (
        &toml::Spanned<toml::de::DeString<'_>>,
        &toml::Spanned<toml::de::DeValue<'_>>,
    )| { Ok((key.get_ref().to_string(), toml_item(value, line)?)) };
    table.iter().map(entry).collect()
}

fn toml_item(
    value: &toml::Spanned<toml::de::DeValue<'_>>,
    line: &dyn Fn(usize) -> usize,
) -> Result<Item, SyntaxError> {
    use toml::de::DeValue;
    let at = line(value.span().start);
    let wrong = |what: &dyn fmt::Display| SyntaxError {
        line: at,
        message: format!(
            "cannot use {what}: expected text, a number, true, false, a list or a table"
        ),
    };
    let value = match value.get_ref() {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(i) => {
            let n = i64::from_str_radix(i.as_str(), i.radix());
            Value::Integer(n.map_err(|_| wrong(&i.as_str()))?)
        }
        DeValue::Float(f) => Value::Float(f.as_str().parse().map_err(|_| wrong(&f.as_str()))?),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(d) => return Err(wrong(d)),
        DeValue::Array(list) => Value::List(
            list.iter()
                .map(|v| toml_item(v, line))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => Value::Map(toml_map(table, line)?),
    };
    Ok(Item {
        value,
        line: at,
        referenced: false,
    })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    outside: &'a dyn Outside,
    /// The files that include this text, the outermost first, by which the reader finds a file that includes
    /// itself.
    trail: &'a mut Vec<PathBuf>,
}

impl Reader<'_> {
    /// Reads keys and values up to the closing brace, or up to the end of the text if `braced` is false.
    /// `outer` holds the enclosing maps with their keys so far, in which the reader looks for variables.
    fn map(
        &mut self,
        braced: bool,
        depth: usize,
        outer: &mut Vec<Map>,
    ) -> Result<Map, SyntaxError> {
        self.check_depth(depth)?;
        outer.push(Map::new());
        loop {
            self.skip(b" \t\r\n;,");
            match self.peek() {
                None if braced => return Err(self.error("expected `}`, found the end of the text")),
                None => break,
                Some(b'}') if braced => {
                    self.at += 1;
                    break;
                }
                Some(_) => {}
            }
            let line = self.line;
            let key = self.key()?;
            self.skip(b" \t");
            if key == "include" {
                let path = match self.peek() {
                    Some(quote @ (b'"' | b'\'')) => self.quoted(quote)?,
                    _ => self.take_until(WORD_ENDS).into(),
                };
                let included = self.include(&path, depth, outer)?;
                for entry in included {
                    put(outer, entry);
                }
                continue;
            }
            if matches!(self.peek(), Some(b':' | b'=')) {
                self.at += 1;
            }
            self.skip(b" \t\r\n");
            let value = self.value(depth, outer)?;
            let item = Item {
                value,
                line,
                referenced: false,
            };
            put(outer, (key, item));
        }
        Ok(outer.pop().unwrap_or_default())
    }

    fn include(
        &mut self,
        path: &str,
        depth: usize,
        outer: &mut Vec<Map>,
    ) -> Result<Map, SyntaxError> {
        // Paths that differ only in `./` name one file, so the reader ignores `./` when it looks for a file
        // that includes itself.
        let parts = Path::new(path).components();
        let file: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
        if let Some(first) = self.trail.iter().position(|outer| *outer == file) {
            let cycle = self.trail[first..].iter().chain([&file]);
            let cycle: Vec<_> = cycle.map(|file| file.display().to_string()).collect();
            let cycle = cycle.join(" -> ");
            return Err(self.error(&format!("the file includes itself: {cycle}")));
        }
        let text = self.outside.include(Path::new(path));
        let text = text.map_err(|e| self.error(&format!("cannot include `{path}`: {e}")))?;
        self.trail.push(file);
        let mut reader = Reader {
            text: without_mark(&text),
            at: 0,
            line: 1,
            outside: self.outside,
            trail: &mut *self.trail,
        };
        let map = reader.map(false, depth + 1, outer);
        self.trail.pop();
        map.map_err(|e| self.error(&format!("in `{path}`, {e}")))
    }

    fn key(&mut self) -> Result<String, SyntaxError> {
        let key = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote)?,
            _ => self.take_until(b" \t\r\n:={}[];,#\"'").into(),
        };
        if key.is_empty() {
            return Err(self.error("expected the name of a setting"));
        }
        Ok(key)
    }

    fn value(&mut self, depth: usize, outer: &mut Vec<Map>) -> Result<Value, SyntaxError> {
        match self.peek() {
            None => Err(self.error("expected a value, found the end of the text")),
            Some(b'{') => {
                self.at += 1;
                Ok(Value::Map(self.map(true, depth + 1, outer)?))
            }
            Some(b'[') => {
                self.at += 1;
                self.list(depth + 1, outer)
            }
            Some(b'(') => self.block(),
            Some(quote @ (b'"' | b'\'')) => Ok(Value::Text(self.quoted(quote)?)),
            Some(_) => match self.bare(WORD_ENDS)? {
                // As in nats-server, a word with an escape is text, also if it reads like a variable.
                (text, true) => Ok(Value::Text(text)),
                (word, false) => match word.strip_prefix('$') {
                    // A word that begins with `$2` is a bcrypt hash, so the reader does not take it for a
                    // variable.
                    Some(name) if !word.starts_with("$2") => self.variable(name, depth, outer),
                    _ if word.is_empty() => Err(self.error("expected a value")),
                    _ => Ok(scalar(&word)),
                },
            },
        }
    }

    fn list(&mut self, depth: usize, outer: &mut Vec<Map>) -> Result<Value, SyntaxError> {
        self.check_depth(depth)?;
        let mut items = Vec::new();
        loop {
            self.skip(b" \t\r\n,");
            match self.peek() {
                None => return Err(self.error("expected `]`, found the end of the text")),
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::List(items));
                }
                Some(_) => {
                    let line = self.line;
                    let value = self.value(depth, outer)?;
                    items.push(Item {
                        value,
                        line,
                        referenced: false,
                    });
                }
            }
        }
    }

    fn variable(
        &self,
        name: &str,
        depth: usize,
        outer: &mut Vec<Map>,
    ) -> Result<Value, SyntaxError> {
        let mut keys = outer.iter_mut().rev().flat_map(|map| map.iter_mut().rev());
        if let Some((_, item)) = keys.find(|(key, _)| key == name) {
            item.referenced = true;
            return Ok(item.value.clone());
        }
        let Some(text) = self.outside.variable(name) else {
            return Err(self.error(&format!(
                "variable `${name}` is neither set above nor in the environment"
            )));
        };
        // The reader takes quotes, brackets and escapes in the environment as in the file, because operators
        // quote values that would otherwise be numbers.
        let mut reader = Reader {
            text: &text,
            at: 0,
            line: self.line,
            outside: self.outside,
            trail: &mut Vec::new(),
        };
        let value = match text.starts_with(['"', '\'', '[', '{']) {
            true => reader.value(depth + 1, outer),
            false => reader.bare(b"").map(|word| match word {
                (text, true) => Value::Text(text),
                (word, false) => scalar(&word),
            }),
        };
        value.map_err(|e| self.error(&format!("in the variable `${name}`: {}", e.message)))
    }

    fn quoted(&mut self, quote: u8) -> Result<String, SyntaxError> {
        let line = self.line;
        self.at += 1;
        let mut out = Vec::new();
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                _ if byte == quote => return self.text_of(out),
                b'\\' if quote == b'"' => out.push(self.escape()?),
                b'\n' => {
                    self.line += 1;
                    out.push(byte);
                }
                _ => out.push(byte),
            }
        }
        self.line = line;
        Err(self.error("a quote is not closed"))
    }

    /// Reads a string of the form `( ... )`, which a parenthesis alone on its line closes, as in nats-server.
    fn block(&mut self) -> Result<Value, SyntaxError> {
        let body = &self.text[self.at + 1..];
        let mut end = 0;
        for line in body.split_inclusive('\n') {
            if line.trim() == ")" && end > 0 {
                self.line += body[..end].matches('\n').count();
                self.at += 1 + end + line.trim_end().len();
                return Ok(Value::Text(body[..end].trim_matches('\n').into()));
            }
            end += line.len();
        }
        Err(self.error("expected `)` on a line of its own"))
    }

    /// Reads a bare word up to one of the bytes `ends`. Returns its text with the escapes undone, and whether
    /// it had any. A `#` within a word belongs to it, as in nats-server: it may be a part of a password.
    fn bare(&mut self, ends: &[u8]) -> Result<(String, bool), SyntaxError> {
        let rest = self.text[self.at..].bytes();
        let digits = rest.take_while(u8::is_ascii_digit).count();
        let (mut out, mut escaped) = (Vec::new(), false);
        while let Some(byte) = self.peek().filter(|byte| !ends.contains(byte)) {
            self.at += 1;
            // nats-server takes the first byte behind leading digits as it stands, also a backslash.
            if byte == b'\\' && (digits == 0 || out.len() != digits) {
                out.push(self.escape()?);
                escaped = true;
            } else {
                out.push(byte);
            }
        }
        Ok((self.text_of(out)?, escaped))
    }

    /// Reads an escape behind its backslash, and returns the byte that it stands for.
    fn escape(&mut self) -> Result<u8, SyntaxError> {
        let (byte, len) = match self.peek() {
            Some(b'n') => (b'\n', 1),
            Some(b't') => (b'\t', 1),
            Some(b'r') => (b'\r', 1),
            Some(other @ (b'"' | b'\\')) => (other, 1),
            Some(b'x') => {
                let digits = self.text.get(self.at + 1..self.at + 3);
                let digits = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
                let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
                let wrong = || self.error("expected two hexadecimal digits after \\x");
                (byte.ok_or_else(wrong)?, 3)
            }
            _ => {
                return Err(self.error(
                    "expected \\n, \\t, \\r, \\\", \\\\ or \\x with two hexadecimal digits: write a backslash as \\\\",
                ));
            }
        };
        self.at += len;
        Ok(byte)
    }

    /// Makes a text of bytes that may come from escapes.
    fn text_of(&self, bytes: Vec<u8>) -> Result<String, SyntaxError> {
        let wrong = |_| self.error("expected UTF-8 from the escapes \\x of a text");
        String::from_utf8(bytes).map_err(wrong)
    }

    fn take_until(&mut self, stops: &[u8]) -> &str {
        let rest = &self.text[self.at..];
        let len = rest
            .bytes()
            .position(|b| stops.contains(&b))
            .unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips comments and the bytes in `blanks` before the next value or key, and counts the lines, for error
    /// messages.
    fn skip(&mut self, blanks: &[u8]) {
        while let Some(byte) = self.peek() {
            let rest = &self.text[self.at..];
            if blanks.contains(&byte) {
                self.line += usize::from(byte == b'\n');
                self.at += 1;
            } else if byte == b'#' || rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    fn check_depth(&self, depth: usize) -> Result<(), SyntaxError> {
        if depth > DEPTH_MAX {
            return Err(self.error(&format!("more than {DEPTH_MAX} levels within each other")));
        }
        Ok(())
    }

    fn error(&self, message: &str) -> SyntaxError {
        SyntaxError {
            line: self.line,
            message: message.into(),
        }
    }
}

fn put(outer: &mut [Map], entry: (String, Item)) {
    if let Some(map) = outer.last_mut() {
        map.push(entry);
    }
}

/// Decides the kind of a bare word, as nats-server does: a truth value, a number, or text if it is neither.
fn scalar(word: &str) -> Value {
    match word.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => return Value::Bool(true),
        "false" | "no" | "off" => return Value::Bool(false),
        _ => {}
    }
    match integer(word) {
        Some(n) if n.to_string() == word => return Value::Integer(n),
        Some(n) if !word.ends_with(|last: char| last.is_ascii_digit()) => return Value::Size(n),
        // A number with a leading zero may be a password, so the reader keeps it as it stands.
        Some(_) => return Value::Text(word.into()),
        None => {}
    }
    let numeric = word
        .bytes()
        .all(|b| b.is_ascii_digit() || b == b'.' || b == b'-');
    match word.parse() {
        Ok(f) if numeric => Value::Float(f),
        _ => Value::Text(word.into()),
    }
}

/// Converts a word into a whole number, with nats-server's suffixes: `k` is 1000, `kb` and `ki` are 1024.
fn integer(word: &str) -> Option<i64> {
    let digits = word
        .bytes()
        .position(|b| !(b.is_ascii_digit() || b == b'-'))
        .unwrap_or(word.len());
    let (number, suffix) = word.split_at(digits);
    if !suffix.is_ascii() {
        return None;
    }
    let suffix = suffix.to_ascii_lowercase();
    let (base, letter) = match suffix.len() {
        0 => return number.parse().ok(),
        1 => (1000, &suffix[..]),
        _ if matches!(&suffix[1..], "b" | "i" | "ib") => (1024, &suffix[..1]),
        _ => return None,
    };
    let power = 1 + "kmgtpe".find(letter)?;
    number
        .parse::<i64>()
        .ok()?
        .checked_mul(i64::checked_pow(base, u32::try_from(power).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Outside for Fake {
        fn variable(&self, name: &str) -> Option<String> {
            let text = match name {
                "PORT" => "4300",
                "QUOTED" => "\"4300\"",
                "LIST" => "[a, $PORT]",
                "OPEN" => "[a",
                "AGAIN" => "[$AGAIN]",
                "ESCAPED" => "a b\\x43",
                "WRONG" => "a\\b",
                _ => return None,
            };
            Some(text.into())
        }

        fn include(&self, path: &Path) -> Result<String, String> {
            match path.to_str() {
                Some("loop.conf") => Ok("\u{feff}include ./more.conf".into()),
                Some("./more.conf") => Ok("port: 1\ninclude ./loop.conf".into()),
                Some("deep.conf") => Ok("include deeper.conf".into()),
                Some("deeper.conf") => Ok(format!("a: {}", "[".repeat(5000))),
                Some("users.conf") => Ok("users = [{user: a, password: $SECRET}]".into()),
                _ => Err("no such file".into()),
            }
        }
    }

    fn read(text: &str) -> Result<Map, SyntaxError> {
        read_nats(text, &Fake)
    }

    fn show(map: &Map) -> String {
        fn value(v: &Value) -> String {
            match v {
                Value::Text(t) => format!("{t:?}"),
                Value::Integer(i) => i.to_string(),
                Value::Size(n) => format!("{n}z"),
                Value::Float(f) => format!("{f}f"),
                Value::Bool(b) => b.to_string(),
                Value::List(l) => format!(
                    "[{}]",
                    l.iter()
                        .map(|i| value(&i.value))
                        .collect::<Vec<_>>()
                        .join(" ")
                ),
                Value::Map(m) => format!("{{{}}}", show(m)),
            }
        }
        let entry = |(k, i): &(String, Item)| format!("{k}@{}={}", i.line, value(&i.value));
        map.iter().map(entry).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_forms() {
        let text = "port: 4222 # comment\nhost=0.0.0.0 // other\nmax_payload 1MB; debug on\nratio 1.5\n\
                    SECRET: 's3cr#t'\ntls { cert_file: \"./a b.pem\", timeout = 2 }\nlist: [a, \"b\"\n 3k]\n\
                    pass: $2a$11$abc\np: $PORT, s: $SECRET\nauthorization { include users.conf }\nlong: (\nline\n)\nlast: x";
        assert_eq!(
            show(&read(text).unwrap()),
            "port@1=4222 host@2=\"0.0.0.0\" max_payload@3=1048576z debug@3=true ratio@4=1.5f SECRET@5=\"s3cr#t\" \
             tls@6={cert_file@6=\"./a b.pem\" timeout@6=2} list@7=[\"a\" \"b\" 3000z] pass@9=\"$2a$11$abc\" p@10=4300 \
             s@10=\"s3cr#t\" authorization@11={users@1=[{user@1=\"a\" password@1=\"s3cr#t\"}]} long@12=\"line\" last@15=\"x\""
        );
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(show(&read("\u{feff}port: 1").unwrap()), "port@1=1");
        assert_eq!(show(&read_toml("\u{feff}port = 1").unwrap()), "port@1=1");
    }

    #[test]
    fn json_is_read_as_it_is() {
        let text = "\n{\n  \"port\": -1,\n  \"jetstream\": { \"store_dir\": \"/d\" },\n  \"debug\": true\n}\n";
        assert_eq!(
            show(&read(text).unwrap()),
            "port@3=-1 jetstream@4={store_dir@4=\"/d\"} debug@5=true"
        );
    }

    #[test]
    fn quotes_and_brackets_in_the_environment_are_read_as_in_the_file() {
        assert_eq!(
            show(&read("a: $PORT, b: $QUOTED, c: $LIST").unwrap()),
            "a@1=4300 b@1=\"4300\" c@1=[\"a\" 4300]"
        );
    }

    #[test]
    fn values_of_variables_are_marked() {
        let map = read("a { b: 1, c: { d: $b } }, e: 2").unwrap();
        let Value::Map(inner) = &map[0].1.value else {
            panic!("{map:?}")
        };
        let marks: Vec<bool> = inner.iter().map(|(_, item)| item.referenced).collect();
        assert_eq!(marks, [true, false]);
        assert!(!map[1].1.referenced);
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line, part) in [
            ("a: 1\nb: {\nc: 2", 3, "expected `}`"),
            ("a: [1", 1, "expected `]`"),
            ("a: \"x", 1, "not closed"),
            ("\n\na: $NOPE", 3, "$NOPE"),
            ("a:", 1, "expected a value"),
            ("x\n= {", 2, "expected"),
            ("{\nport: 1", 2, "expected `}`"),
            ("{port: 1}\nhost: a", 2, "after the closing"),
            ("include other.conf", 1, "no such file"),
            ("\na: $OPEN", 2, "in the variable `$OPEN`: expected `]`"),
            ("a: $AGAIN", 1, "levels"),
            (
                "include loop.conf",
                1,
                "in `./more.conf`, line 2: the file includes itself: loop.conf -> more.conf -> loop.conf",
            ),
            ("include deep.conf", 1, "levels"),
            ("a: (\nx", 1, "expected `)`"),
            ("\na: x\\q", 2, "hexadecimal digits: write a backslash"),
            ("\na: x\\ y", 2, "hexadecimal digits: write a backslash"),
            ("\na: x\\", 2, "hexadecimal digits: write a backslash"),
            ("a: \"\n\\q\"", 2, "hexadecimal digits: write a backslash"),
            ("\n\na: \\x4", 3, "two hexadecimal digits after \\x"),
            ("a: \\x+4", 1, "two hexadecimal digits after \\x"),
            ("a: \"\\xé\"", 1, "two hexadecimal digits after \\x"),
            ("a: \\xff", 1, "UTF-8"),
            ("a: $WRONG", 1, "in the variable `$WRONG`: expected \\n"),
            ("include 'a", 1, "not closed"),
        ] {
            let e = read(text).unwrap_err();
            assert!(e.message.contains(part), "{text:?}: {e}");
            assert_eq!(e.line, line, "{text:?}: {e}");
        }
        assert!(
            read(&"a {".repeat(5000))
                .unwrap_err()
                .message
                .contains("levels")
        );
        assert!(
            read(&format!("a: {}", "[".repeat(5000)))
                .unwrap_err()
                .message
                .contains("levels")
        );
    }

    #[test]
    fn toml_gives_the_same_tree() {
        let map = read_toml("port = 4222\n[tls]\ncert_file = \"a\"\nlist = [1, true]\n").unwrap();
        assert_eq!(
            show(&map),
            "port@1=4222 tls@2={cert_file@3=\"a\" list@4=[1 true]}"
        );
        assert_eq!(read_toml("a = 1\nb = = 2").unwrap_err().line, 2);
        assert_eq!(read_toml("a = 1\nb = 1979-05-27").unwrap_err().line, 2);
    }

    #[test]
    fn a_bare_word_keeps_its_text() {
        let text =
            "a: é\nb: 4999é\nc: abc#def\nd: 0123\ne: -1\nf: 10MB # ten\ng: [ü, 日本]\nh: 5kü";
        assert_eq!(
            show(&read(text).unwrap()),
            "a@1=\"é\" b@2=\"4999é\" c@3=\"abc#def\" d@4=\"0123\" e@5=-1 f@6=10485760z \
             g@7=[\"ü\" \"日本\"] h@8=\"5kü\""
        );
    }

    #[test]
    fn escapes_count_in_bare_words_and_in_double_quotes() {
        let text = r#"a: x\ty\"\\\x41\x20z, b: "x\ty\"\\\x41\x20z", c: '\n\q', d: [\x34\x32, \x74rue], e: \x24PORT
f: $ESCAPED, g: 12\n3\n, h: 12k\n, i: \xc3\xa9, j: a\x2cb"#;
        assert_eq!(
            show(&read(text).unwrap()),
            r#"a@1="x\ty\"\\A z" b@1="x\ty\"\\A z" c@1="\\n\\q" d@1=["42" "true"] e@1="$PORT" "#
                .to_owned()
                + r#"f@2="a bC" g@2="12\\n3\n" h@2="12k\n" i@2="é" j@2="a,b""#
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_ends(text in "[a-c{}\\[\\]()$\"'\n:=#;, 0-9km\\\\]{0,80}") {
            let _ = read(&text);
        }
    }
}
