//! Parses the line protocol of the rivals: a request is `verb key=value ...`, and its answer is one JSON
//! object. See bench/peers/README.md.

use std::collections::HashMap;
use std::str::FromStr;

/// A request that is split into its verb and its fields, of which the getters check the values.
pub struct Request<'a> {
    pub verb: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

impl<'a> Request<'a> {
    /// Splits a line into its words. An error names the word that is not `key=value`.
    pub fn parse(line: &'a str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or("");
        let fields = words
            .map(|word| {
                word.split_once('=')
                    .ok_or_else(|| format!("not key=value: {word}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { verb, fields })
    }

    pub fn text(&self, key: &str) -> Result<&'a str, String> {
        self.fields
            .get(key)
            .copied()
            .ok_or_else(|| format!("{} needs {key}=", self.verb))
    }

    pub fn number<T: FromStr>(&self, key: &str) -> Result<T, String> {
        let text = self.text(key)?;
        text.parse()
            .map_err(|_| format!("{key}={text} is not a number in range"))
    }

    pub fn number_or<T: FromStr>(&self, key: &str, default: T) -> Result<T, String> {
        if self.fields.contains_key(key) {
            self.number(key)
        } else {
            Ok(default)
        }
    }
}

/// The answer to a request: a flat JSON object, which the program writes field by field.
#[derive(Default)]
pub struct Answer(String);

impl Answer {
    pub fn text(self, key: &str, value: &str) -> Self {
        let value = quote(value);
        self.raw(key, &value)
    }

    pub fn float(self, key: &str, value: f64) -> Self {
        // JSON has no number for infinity, so the answer has `null` instead.
        let value = if value.is_finite() {
            format!("{value:.6}")
        } else {
            "null".to_string()
        };
        self.raw(key, &value)
    }

    pub fn raw(mut self, key: &str, json: &str) -> Self {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&format!("{}:{json}", quote(key)));
        self
    }

    pub fn end(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_verb_and_fields() {
        let request = Request::parse("queue system=kanal items=5").expect("well formed");
        assert_eq!(
            (request.verb, request.text("system")),
            ("queue", Ok("kanal"))
        );
        assert_eq!(request.number("items"), Ok(5u64));
        assert_eq!(request.number_or("capacity", 7u64), Ok(7));
        assert_eq!(
            request.number::<u64>("batch"),
            Err("queue needs batch=".to_string())
        );
        assert!(Request::parse("queue system").is_err());
    }

    #[test]
    fn an_answer_is_valid_json() {
        assert_eq!(Answer::default().end(), "{}");
        let answer = Answer::default()
            .text("a", "x\"\n")
            .float("b", f64::NAN)
            .end();
        assert_eq!(answer, r#"{"a":"x\"\u000a","b":null}"#);
    }
}
