//! Reads a configuration's tree, block by block: looks each setting up in the table of
//! [`known`](super::known), lets the block's code carry it out, and lists it in a [`Report`].
//!
//! The reading goes on after a refused setting, so that one run reports all of them.

use super::known::{self, Meaning};
use super::tree::{Item, Map, SyntaxError, Value};
use super::values::error;

/// A setting of a configuration file, by which messages name it to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of the setting, with its block before it, such as `cluster.pool_size`.
    pub name: String,
    /// The line of the setting in its file, counted from 1, so that the operator finds the setting.
    pub line: usize,
}

/// The result of reading a configuration file: what the server does with each setting. The server shows it to
/// the operator, who can then correct the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The settings that the server obeys, in the order of the file, for a check of the file.
    pub taken: Vec<Named>,
    /// The settings that the server accepts although they change nothing here. The server names them to the
    /// operator.
    pub without_effect: Vec<Named>,
    /// The reasons why the server refuses settings. The server does not start with a refused setting, because
    /// it would break a promise.
    pub refused: Vec<SyntaxError>,
    /// Sentences about effects of several settings together, which the server tells the operator.
    pub remarks: Vec<&'static str>,
}

impl Report {
    /// Returns the names and lines of the settings without effect as one text for the log, or `None` without
    /// such settings.
    #[must_use]
    pub fn idle_text(&self) -> Option<String> {
        let one = |s: &Named| format!("{} (line {})", s.name, s.line);
        let names: Vec<String> = self.without_effect.iter().map(one).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// The state of reading one configuration, which gathers the report.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) report: Report,
    /// True if the operator wants the server to refuse settings without effect, with `strict`, so that no
    /// setting is there in vain.
    pub(super) strict: bool,
}

impl Reading {
    /// Reads the settings in `map`, which stand in the block `block`. Calls `carry_out` with the first name
    /// and the value of each setting that the server obeys by the table. Adds the others to the report.
    pub(super) fn block(
        &mut self,
        block: &str,
        map: &Map,
        carry_out: &mut dyn FnMut(&mut Self, &'static str, &Item) -> Result<(), SyntaxError>,
    ) {
        for (key, item) in map {
            if let Err(error) = self.setting(block, key, item, carry_out) {
                self.report.refused.push(error);
            }
        }
    }

    fn setting(
        &mut self,
        block: &str,
        key: &str,
        item: &Item,
        carry_out: &mut dyn FnMut(&mut Self, &'static str, &Item) -> Result<(), SyntaxError>,
    ) -> Result<(), SyntaxError> {
        let name = match block {
            "" => key.to_owned(),
            block => format!("{block}.{key}"),
        };
        let Some(setting) = known::find(block, key) else {
            // An unknown key is no error if a variable refers to it, or if it stands at the top level and
            // begins with a capital: operators define variables in this way.
            let is_variable = item.referenced
                || block.is_empty() && key.starts_with(|c: char| c.is_ascii_uppercase());
            return match is_variable {
                true => Ok(()),
                false => Err(error(
                    item,
                    format!(
                        "the setting `{name}` does not exist here: remove it (docs/nats-support.md lists what does)"
                    ),
                )),
            };
        };
        match setting.meaning {
            Meaning::CarriedOut | Meaning::Own => {
                carry_out(self, setting.names[0], item)?;
                if !matches!(item.value, Value::Map(_)) {
                    self.taken(name, item);
                }
            }
            Meaning::WithoutEffect => self.without_effect(name, item),
            Meaning::Refused(_) if is_off(&item.value) => self.taken(name, item),
            Meaning::Refused(reason) => {
                let message = format!("the setting `{name}` does not exist here: {reason}");
                return Err(error(item, message));
            }
        }
        Ok(())
    }

    /// Adds a setting without effect to the report, for the operator.
    pub(super) fn without_effect(&mut self, name: String, item: &Item) {
        let line = item.line;
        self.report.without_effect.push(Named { name, line });
    }

    fn taken(&mut self, name: String, item: &Item) {
        // The code of a setting may already have listed it as without effect, because of its value.
        let line = item.line;
        let listed = |s: &Named| s.name == name && s.line == line;
        if !self.report.without_effect.iter().any(listed) {
            self.report.taken.push(Named { name, line });
        }
    }

    /// Adds to the report that the server refuses a setting, or a combination of settings, for the reason in
    /// `error`.
    pub(super) fn refuse(&mut self, error: SyntaxError) {
        self.report.refused.push(error);
    }

    /// Ends the reading and returns the report. With `strict`, the report refuses the settings without
    /// effect.
    pub(super) fn finish(mut self) -> Report {
        if self.strict {
            for Named { name, line } in std::mem::take(&mut self.report.without_effect) {
                let message =
                    format!("the setting `{name}` has no effect here, and `strict` refuses it");
                self.report.refused.push(SyntaxError { line, message });
            }
        }
        self.report
    }
}

/// Returns whether the value turns its feature off, so that a server without the feature may accept the
/// setting.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Text(text) => text.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Integer(_) | Value::Size(_) | Value::Float(_) => false,
    }
}
