//! The plan of a report: the steps, each with the command line of a bench of this program. Pure.
//!
//! A step is the smallest part that the report measures again after a change of the program. Benches with
//! kept cells get a file for them, so that an interrupted step goes on where it was.

/// One step of the report: a call of one bench.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) name: &'static str,
    /// The subject of the bench, for the reader.
    pub(super) about: &'static str,
    pub(super) program: Program,
    /// The arguments of the program that run the bench with one JSON document on standard output.
    pub(super) args: Vec<String>,
    /// The flag that names the file of the bench's finished cells, if the bench keeps them.
    pub(super) keeps: Option<&'static str>,
    /// A rough duration in seconds, until the step has been measured once.
    pub(super) guess_s: f64,
}

/// The program that runs a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// This program.
    Own,
    /// cargo, for a bench of a crate, in the working tree.
    Cargo,
}

impl Program {
    /// Returns the name of the program, for the reader.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Own => "tidegate-bench",
            Self::Cargo => "cargo",
        }
    }
}

/// The length of the benches' measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Measure briefly, to prove only that the report works.
    Quick,
    Usual,
}

/// The line of the plan about one bench, with the arguments of either length.
struct Line {
    name: &'static str,
    about: &'static str,
    /// The arguments of both lengths. Those of a bench of cargo begin with `bench`.
    common: &'static str,
    usual: &'static str,
    quick: &'static str,
    keeps: Option<&'static str>,
    /// The guessed duration of the usual length, in minutes.
    minutes: f64,
}

/// The flags of the usual and of the quick length of the benches that share their options.
const FULL: &str = "--full";
const SMOKE: &str = "--effort smoke --rounds 1";
/// The text that takes the place of `--peers` in the arguments: the flag, if this build has the rivals of the
/// bench `handlers`.
const RIVALS: &str = "RIVALS";
/// The guessed share of the usual duration that a quick step takes.
const QUICK_SHARE: f64 = 0.02;

const fn session(
    name: &'static str,
    about: &'static str,
    common: &'static str,
    minutes: f64,
) -> Line {
    Line {
        name,
        about,
        common,
        usual: FULL,
        quick: SMOKE,
        keeps: Some("--resume"),
        minutes,
    }
}

const fn redis(name: &'static str, common: &'static str) -> Line {
    Line {
        // Every call has cells for about ten minutes. The cells of `--full` would take a day.
        usual: "",
        ..session(
            name,
            "the Redis client beside rueidis, go-redis, redis-rs and rustis",
            common,
            9.0,
        )
    }
}

const fn handlers(name: &'static str, common: &'static str) -> Line {
    Line {
        name,
        about: "a real handler: the defaults beside the best fixed settings and the crates that batch",
        common,
        usual: "",
        quick: "--quick --seconds 0.05",
        keeps: Some("--out"),
        minutes: 40.0,
    }
}

const fn many(name: &'static str, common: &'static str) -> Line {
    Line {
        name,
        about: "very many streams, consumers or subjects on one server",
        common,
        usual: "",
        quick: "--scale 0.002 --idle 0.2 --rest-max 1",
        keeps: None,
        minutes: 8.0,
    }
}

const LINES: &[Line] = &[
    session(
        "mailbox",
        "the batch actor beside gen_batch_server",
        "mailbox --peers",
        10.0,
    ),
    Line {
        name: "tasks",
        about: "calls of tasks to actors beside the loops that users of tokio and of threads write",
        common: "bench --locked -p tidegate --features tokio --bench callers --",
        usual: "",
        quick: "lone",
        keeps: None,
        minutes: 5.0,
    },
    session(
        "queue",
        "the queue beside other queues and Storm's JCQueue",
        "queue --peers",
        25.0,
    ),
    session(
        "topology",
        "a word count beside Storm",
        "topology --peers",
        25.0,
    ),
    session(
        "link",
        "acknowledged messages beside bare sockets",
        "link --peers",
        8.0,
    ),
    redis("redis-publish", "redis --peers --only PUBLISH"),
    redis("redis-get", "redis --peers --only GET_64_B"),
    redis("redis-set", "redis --peers --only SET_64_B"),
    redis("redis-mix", "redis --peers --only 80:20"),
    session(
        "callers",
        "callers that wait for a durable answer, beside nats-server, Redis and PostgreSQL",
        "callers --peers",
        15.0,
    ),
    session(
        "league",
        "callers that wait for a durable answer, also beside SQLite, etcd, Kafka and RabbitMQ",
        "callers --peers --league",
        35.0,
    ),
    session(
        "stream",
        "streams on one node beside nats-server",
        "stream --peers",
        40.0,
    ),
    session(
        "cluster",
        "streams on three nodes beside nats-server",
        "cluster --peers",
        60.0,
    ),
    session(
        "raft",
        "the gain of each step of the replication",
        "raft --peers",
        20.0,
    ),
    handlers("handlers-postgres", "handlers RIVALS --cells postgres"),
    handlers("handlers-sqlite", "handlers RIVALS --cells sqlite"),
    handlers("handlers-http", "handlers RIVALS --cells http"),
    handlers("handlers-append", "handlers RIVALS --cells append"),
    handlers("handlers-padded", "handlers RIVALS --cells padded"),
    handlers("handlers-upsert", "handlers RIVALS --cells upsert"),
    many("many-streams", "many --peers --only streams"),
    many("many-consumers", "many --peers --only consumers"),
    many("many-subjects", "many --peers --only subjects"),
    Line {
        name: "features",
        about: "work queues, mirrors, sources and republished messages beside nats-server",
        common: "features --peers",
        usual: "",
        quick: "--scale 0.001 --rounds 1",
        keeps: None,
        minutes: 12.0,
    },
    Line {
        name: "neighbours",
        about: "the harm that one client does to the others, beside nats-server",
        common: "neighbours --peers --always",
        usual: "",
        quick: "--scale 0.01 --before 0.3 --window 0.3 --after 0.3",
        keeps: None,
        minutes: 40.0,
    },
    Line {
        name: "costs",
        about: "the cost of each work of the server's event loop",
        common: "costs",
        usual: "",
        quick: "--rounds 1",
        keeps: None,
        minutes: 2.0,
    },
    Line {
        name: "arena",
        about: "controllers in generated worlds, in virtual time",
        common: "arena",
        usual: "--cells 300",
        quick: "--cells 4 --items 20000 --rounds 2",
        keeps: Some("--cache"),
        minutes: 60.0,
    },
    Line {
        name: "response",
        about: "controllers after a step of the costs, in virtual time",
        common: "response",
        usual: "",
        quick: "--span 800",
        keeps: None,
        minutes: 0.1,
    },
];

/// Returns all steps in the order in which the report runs and shows them.
pub(super) fn steps(length: Length) -> Vec<Step> {
    LINES.iter().map(|line| step(line, length)).collect()
}

fn step(line: &Line, length: Length) -> Step {
    let (own, share) = match length {
        Length::Usual => (line.usual, 1.0),
        Length::Quick => (line.quick, QUICK_SHARE),
    };
    let words = line.common.split(' ').chain(own.split(' '));
    let words = words.filter(|word| !word.is_empty());
    let words = words.filter(|word| *word != RIVALS || cfg!(feature = "peers"));
    let word = |word: &str| match word {
        RIVALS => "--peers".to_owned(),
        // The names of cells have blanks, and the arguments of the plan are separated by blanks.
        word => word.replace('_', " "),
    };
    let program = match line.common.starts_with("bench ") {
        true => Program::Cargo,
        false => Program::Own,
    };
    Step {
        name: line.name,
        about: line.about,
        program,
        args: words.map(word).chain(["--json".into()]).collect(),
        keeps: line.keeps,
        guess_s: line.minutes * 60.0 * share,
    }
}

/// Selects the steps with one of the texts in their names. The texts are separated by commas. A text that is
/// the whole name of a step selects only this one.
///
/// # Errors
///
/// A text fits no step; the error names all steps.
pub(super) fn select(steps: Vec<Step>, only: Option<&str>) -> Result<Vec<Step>, String> {
    let Some(only) = only else {
        return Ok(steps);
    };
    let texts: Vec<&str> = only.split(',').map(str::trim).collect();
    for text in &texts {
        if text.is_empty() || !steps.iter().any(|step| step.name.contains(text)) {
            let names: Vec<_> = steps.iter().map(|step| step.name).collect();
            return Err(format!(
                "no step has `{text}` in its name: {}",
                names.join(", ")
            ));
        }
    }
    let is_name = |text: &str| steps.iter().any(|step| step.name == text);
    let fits = |step: &Step, text: &str| match is_name(text) {
        true => step.name == text,
        false => step.name.contains(text),
    };
    let wanted = steps
        .iter()
        .map(|step| texts.iter().any(|text| fits(step, text)));
    let wanted: Vec<bool> = wanted.collect();
    let selected = steps
        .into_iter()
        .zip(wanted)
        .filter(|(_, is_wanted)| *is_wanted);
    Ok(selected.map(|(step, _)| step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_command_line_of_this_program() {
        use clap::Parser as _;
        for length in [Length::Usual, Length::Quick] {
            let steps = steps(length);
            let mut names: Vec<_> = steps.iter().map(|step| step.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), steps.len());
            for step in steps
                .into_iter()
                .filter(|step| step.program == Program::Own)
            {
                let mut words = vec!["tidegate-bench".to_owned()];
                words.extend(step.args.clone());
                words.extend(
                    step.keeps
                        .into_iter()
                        .flat_map(|flag| [flag.to_owned(), "file".into()]),
                );
                let parsed = crate::args::Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn texts_choose_steps() {
        let named = |only: &str| -> Vec<&str> {
            let chosen = select(steps(Length::Quick), Some(only)).unwrap();
            chosen.into_iter().map(|step| step.name).collect()
        };
        assert_eq!(named("redis").len(), 4);
        assert_eq!(named("queue, response"), ["queue", "response"]);
        let refused = select(steps(Length::Quick), Some("queue,nosuch")).unwrap_err();
        assert!(
            refused.starts_with("no step has `nosuch` in its name: mailbox, "),
            "{refused}"
        );
        assert!(select(steps(Length::Quick), Some("")).is_err());
        assert_eq!(
            select(steps(Length::Usual), None).unwrap(),
            steps(Length::Usual)
        );
    }

    #[test]
    fn names_of_cells_keep_their_blanks() {
        let steps = steps(Length::Usual);
        let get = steps.iter().find(|step| step.name == "redis-get").unwrap();
        assert!(get.args.contains(&"GET 64 B".to_owned()), "{get:?}");
    }
}
