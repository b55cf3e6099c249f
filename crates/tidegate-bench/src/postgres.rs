//! A PostgreSQL server that the bench starts on loopback, with a database cluster of its own. The bench
//! removes the cluster at its end, even if a signal kills the bench.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tidegate_cli::Usage;

/// The longest time that the PostgreSQL server may take to start or to end, before the bench reports a
/// failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The user of the database, who owns all tables.
pub(crate) const USER: &str = "bench";
/// The name of the database.
pub(crate) const DATABASE: &str = "postgres";
/// The shell script that runs the PostgreSQL server. It ends the server and removes the cluster when the
/// bench's end of the pipe closes, even if a signal killed the bench.
const GUARD: &str = r#"directory=$1; shift
"$@" >"$directory/log" 2>&1 & server=$!; read -r _; kill -QUIT $server; wait $server; rm -rf "$directory""#;
/// The process of the PostgreSQL server, with its directory and its port.
pub(crate) struct Server {
    guard: Child,
    directory: PathBuf,
    port: u16,
    password: String,
}

impl Server {
    /// Creates a database cluster below `directory`, and starts the server with its default settings.
    ///
    /// # Errors
    ///
    /// PostgreSQL is not installed, or does not start.
    pub(crate) fn start(directory: &Path) -> anyhow::Result<Self> {
        let programs = programs()?;
        let user = user()?;
        let directory = directory.join("postgres");
        std::fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
        let password = format!("{:016x}", random()?);
        let password_file = directory.join("password");
        std::fs::write(&password_file, &password)?;
        if let Some((uid, gid)) = user {
            chown(&directory, Some(uid), Some(gid))?;
            chown(&password_file, Some(uid), Some(gid))?;
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.current_dir(&directory).process_group(0);
            command
        };
        let data = directory.join("data");
        let made = command(&programs.join("initdb"))
            .args([
                "--username",
                USER,
                "--auth=scram-sha-256",
                "--no-locale",
                "-E",
                "UTF8",
            ])
            .arg(format!("--pwfile={}", password_file.display()))
            .arg("-D")
            .arg(&data)
            .stdin(Stdio::null())
            .output()
            .context("initdb does not start")?;
        if !made.status.success() {
            let words = String::from_utf8_lossy(&made.stderr);
            let last = words.lines().rfind(|line| !line.trim().is_empty());
            bail!(
                "initdb failed: {}",
                last.unwrap_or("it said nothing").trim()
            );
        }
        // Another process may take the free port before the server binds it. The bench then fails with the
        // server's error.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let mut guard = command(Path::new("sh"));
        guard.args(["-c", GUARD, "sh"]).arg(&directory);
        guard.arg(programs.join("postgres")).arg("-D").arg(&data);
        guard.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        guard.args(["-c", "unix_socket_directories="]);
        let guard = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let guard = guard.spawn().context("PostgreSQL does not start")?;
        Ok(Self {
            guard,
            directory,
            port,
            password,
        })
    }

    /// Returns the port on loopback at which the server listens.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the password of the user [`USER`].
    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// Returns the id of the process that is the parent of the server.
    pub(crate) fn guard_pid(&self) -> u32 {
        self.guard.id()
    }

    /// Returns the last line of the PostgreSQL server's log after a colon, for an error message.
    pub(crate) fn said(&self) -> String {
        let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        log.lines()
            .last()
            .map_or_else(String::new, |line| format!(": {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The shell script ends the server and removes the cluster as soon as its input closes.
        drop(self.guard.stdin.take());
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if !matches!(self.guard.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let group = i32::try_from(self.guard.id()).ok();
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.guard.wait();
    }
}

/// The environment variable that names the directory of initdb and postgres, for machines with several
/// versions.
const PROGRAMS: &str = "TIDEGATE_POSTGRES";

/// Returns the directory of initdb and postgres: the directory in the variable [`PROGRAMS`], otherwise a
/// directory on the search path, otherwise the newest of Debian's packages.
pub(crate) fn programs() -> anyhow::Result<PathBuf> {
    let places: Vec<PathBuf> = match std::env::var_os(PROGRAMS) {
        Some(named) => vec![named.into()],
        None => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).chain(debian()).collect()
        }
    };
    let has_both = |place: &&PathBuf| {
        let has = |program: &str| place.join(program).is_file();
        has("initdb") && has("postgres")
    };
    places.iter().find(has_both).cloned().ok_or_else(|| {
        Usage::new(format!(
            "no PostgreSQL to start: expected initdb and postgres in {PROGRAMS}, on the search path or below \
             /usr/lib/postgresql: apt-get install postgresql, or name other handlers by --cells"
        ))
        .into()
    })
}

/// Returns the directories of Debian's PostgreSQL packages, newest first.
fn debian() -> impl Iterator<Item = PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let versions = versions.into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path.join("bin"))
}

/// Returns the ids of the user and the group that run the PostgreSQL server; `None` if the server runs as the
/// bench's own user. PostgreSQL refuses to run as root, so root switches to `postgres`, or to `daemon`.
fn user() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let file = std::fs::File::open("/etc/passwd").context("/etc/passwd")?;
    let lines: Vec<String> = BufReader::new(file).lines().map_while(Result::ok).collect();
    let ids = |name: &str| lines.iter().find_map(|line| ids(line, name));
    let found = ids("postgres").or_else(|| ids("daemon"));
    ensure!(
        found.is_some(),
        "PostgreSQL refuses root, and there is no user postgres or daemon to run it"
    );
    Ok(found)
}

/// Parses the user and group ids in a line of /etc/passwd; `None` if the line belongs to another user than
/// `name`.
fn ids(line: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = line.split(':');
    let is_it = fields.next() == Some(name);
    let mut ids = fields.skip(1).map_while(|field| field.parse().ok());
    is_it.then(|| Some((ids.next()?, ids.next()?)))?
}

/// Returns a random number for the database's password, so that no other user of the machine can guess it.
fn random() -> anyhow::Result<u64> {
    use std::io::Read as _;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_user_are_read() {
        let line = "postgres:x:104:110:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash";
        assert_eq!(ids(line, "postgres"), Some((104, 110)));
        assert_eq!(ids(line, "daemon"), None);
        assert_eq!(ids("postgres:x:none", "postgres"), None);
    }
}
