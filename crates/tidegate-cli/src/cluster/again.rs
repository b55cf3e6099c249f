//! Makes the command line with which the user starts a node again by hand: quoted for the shell, without the
//! values of secrets.

use std::ffi::OsString;
use std::path::Path;

/// The flags of secrets, and the environment variables from which the printed command takes their values.
const SECRETS: [(&str, &str); 3] = [
    ("--auth", "TIDEGATE_AUTH"),
    ("--pass", "TIDEGATE_PASS"),
    ("--cluster-secret", "TIDEGATE_CLUSTER_SECRET"),
];

/// The command that starts a node again, for the user to copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Again {
    command: String,
    /// The secrets that the command takes from environment variables: each flag and its variable.
    secrets: Vec<(&'static str, &'static str)>,
}

impl Again {
    /// Returns the command that runs `program` with these arguments, in which long flags have two dashes.
    pub(super) fn new(program: &Path, arguments: &[OsString]) -> Self {
        let mut again = Self {
            command: quoted(&program.to_string_lossy()),
            secrets: Vec::new(),
        };
        let mut value_of = None;
        for word in arguments {
            let word = word.to_string_lossy();
            again.command.push(' ');
            if let Some(variable) = value_of.take() {
                again.command += &format!("\"${variable}\"");
                continue;
            }
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (&*word, None),
            };
            let name = flag.replace('_', "-");
            match SECRETS.iter().find(|(secret, _)| name == *secret) {
                Some(secret) => {
                    again.secrets.push(*secret);
                    match value {
                        Some(_) => again.command += &format!("{flag}=\"${}\"", secret.1),
                        None => {
                            again.command += flag;
                            value_of = Some(secret.1);
                        }
                    }
                }
                None => again.command += &quoted(&word),
            }
        }
        again
    }
}

impl std::fmt::Display for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("to have it back")?;
        for (flag, variable) in &self.secrets {
            write!(f, ", with the value of {flag} in the variable {variable}")?;
        }
        write!(f, ": {}", self.command)
    }
}

/// Quotes the word so that a POSIX shell reads it unchanged.
fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&b);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        Again::new(Path::new("/bin/tidegate"), &words).to_string()
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(
            again(&["serve", "--data", "it's here/n1", "-m", "8222", ""]),
            r"to have it back: /bin/tidegate serve --data 'it'\''s here/n1' -m 8222 ''"
        );
    }

    #[test]
    fn secrets_are_left_out() {
        assert_eq!(
            again(&["serve", "--auth", "s3cret", "--cluster_secret=x y", "-D"]),
            "to have it back, with the value of --auth in the variable TIDEGATE_AUTH, with the value of \
             --cluster-secret in the variable TIDEGATE_CLUSTER_SECRET: /bin/tidegate serve --auth \
             \"$TIDEGATE_AUTH\" --cluster_secret=\"$TIDEGATE_CLUSTER_SECRET\" -D"
        );
    }
}
