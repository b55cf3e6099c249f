//! The reading of a configuration's tree, block by block: looks each setting up in the table of
//! [`known`](super::known), lets the block's code carry it out, and lists it in a [`Report`].
//!
//! The reading goes on after a refused setting, so that one run reports all of them.

use super::known::{self, Meaning};
use super::tree::{Item, Map, SyntaxError, Value};
use super::values::error;

/// A setting of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of the setting, with its block, such as `cluster.pool_size`.
    pub name: String,
    /// The line of the setting in its file, counted from 1.
    pub line: usize,
}

/// The result of reading a configuration file: what becomes of each of its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The settings that the server carries out, in the order of the file.
    pub taken: Vec<Named>,
    /// The settings that the server takes and that have no effect.
    pub without_effect: Vec<Named>,
    /// The reasons why the server refuses settings. The server does not start with a refused setting.
    pub refused: Vec<SyntaxError>,
    /// Further effects of the settings together that an operator should know.
    pub remarks: Vec<&'static str>,
}

impl Report {
    /// Returns the names and lines of the settings without effect as one text, or `None` without such
    /// settings.
    #[must_use]
    pub fn idle_text(&self) -> Option<String> {
        let one = |s: &Named| format!("{} (line {})", s.name, s.line);
        let names: Vec<String> = self.without_effect.iter().map(one).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// The state of reading one configuration.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) report: Report,
    /// True if the configuration wants settings without effect to be refused.
    pub(super) strict: bool,
}

impl Reading {
    /// Reads the settings in `map`, which stand in the block `block`. Calls `carry_out` with the first name
    /// and the value of each setting that the table calls carried out.
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
            // A key that a variable refers to need not be a setting, and neither need a key at the top level
            // that begins with a capital.
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

    /// Lists a setting without effect.
    pub(super) fn without_effect(&mut self, name: String, item: &Item) {
        let line = item.line;
        self.report.without_effect.push(Named { name, line });
    }

    fn taken(&mut self, name: String, item: &Item) {
        // A setting may have found out from its value that it has no effect.
        let line = item.line;
        let listed = |s: &Named| s.name == name && s.line == line;
        if !self.report.without_effect.iter().any(listed) {
            self.report.taken.push(Named { name, line });
        }
    }

    /// Records that the server refuses a setting, or a combination of settings, for the reason in `error`.
    pub(super) fn refuse(&mut self, error: SyntaxError) {
        self.report.refused.push(error);
    }

    /// Ends the reading. With `strict`, settings without effect are refused.
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

/// Returns whether the value turns its feature off, so that a server without the feature obeys it.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Text(text) => text.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Integer(_) | Value::Float(_) => false,
    }
}
