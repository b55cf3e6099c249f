//! `tidegate serve`: runs a server from flags and a configuration file until a signal ends it.
//!
//! This module owns the precedence of settings (defaults, file, environment and flags), the destination of
//! the log, and the meaning of each signal. `tidegate-server` is the server itself.

pub(crate) mod as_nats_server;
mod banner;
mod check;
mod log_file;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "serve/without_otlp.rs"]
mod otlp;
mod signal;
mod store_dir;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::num::NonZeroI32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args, ValueEnum};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tidegate::controller::Choice;
use tidegate_nats::settings::{Account, Secret, User};
#[cfg(feature = "lab")]
use tidegate_raft::lab::{FixedEntries, RaftStep};
use tidegate_server::config::ClusterSecret;
use tidegate_server::config::{ClusterTls, HANDSHAKE_MAX, HostPort};
use tidegate_server::config::{ConfigError, Named, Report, read_file};
use tidegate_server::config::{
    DATA_DIRECTORY, HandshakeFirst, Settings, StreamSettings, TlsSettings,
};
use tidegate_server::{Handle, Monitor, MonitorOptions, Server, serve_system};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Usage;
use crate::face;
use crate::interrupt;
use crate::output;
use crate::values;
use log_file::LogFile;
use signal::Sent;

/// The arguments with which the operator runs `tidegate serve`: the common flags of nats-server, with the
/// same meaning, and flags of this server.
// The common flag of the version has the letter V, which is another flag of nats-server.
#[derive(Args, Clone, Debug)]
#[command(version = crate::args::VERSION, disable_version_flag = true)]
pub struct ServeArgs {
    /// Listen for clients on this address, for example to let clients of other machines connect. Addresses
    /// beyond this machine need credentials or --insecure. Default: 127.0.0.1.
    #[arg(
        short,
        long,
        alias = "net",
        value_name = "HOST",
        value_parser = values::host,
        env = "TIDEGATE_ADDR"
    )]
    addr: Option<String>,
    /// Listen for clients on this port; -1 lets the system choose a free port. Default: 4222.
    #[arg(
        short,
        long,
        value_name = "PORT",
        allow_negative_numbers = true,
        value_parser = values::port,
        env = "TIDEGATE_PORT"
    )]
    port: Option<u16>,
    /// Name the server, so that clients, other nodes and operators can tell servers apart.
    #[arg(
        short = 'n',
        long = "name",
        alias = "server_name",
        value_name = "NAME",
        value_parser = values::name,
        env = "TIDEGATE_NAME"
    )]
    name: Option<String>,
    /// Serve the HTTP monitor on this port: /dashboard for a browser, /metrics for Prometheus, nats-server's
    /// /healthz, /varz, /connz, /jsz, /routez and /subsz, and the figures that `tidegate top`, `why` and
    /// `headroom` ask for. -1 lets the system choose a free port. Default: no HTTP monitor.
    #[arg(
        short = 'm',
        long,
        alias = "http_port",
        value_name = "PORT",
        allow_negative_numbers = true,
        value_parser = values::port,
        env = "TIDEGATE_HTTP_PORT"
    )]
    http_port: Option<u16>,
    /// Serve the dashboard at the port of the HTTP monitor also to other machines. Default: the dashboard is
    /// on where only this machine reaches that port.
    #[arg(long)]
    dashboard: bool,
    /// Read this configuration file, in nats-server's syntax, or in TOML if the file's name ends in .toml.
    /// The signal HUP makes the server read the file again.
    #[arg(short, long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: Option<PathBuf>,
    /// Check the configuration, print the effect of each setting, and exit, to find mistakes before a start.
    #[arg(short = 't')]
    test: bool,
    /// Write the process id to this file, so that --signal and other programs can signal the server.
    #[arg(short = 'P', long = "pid", value_name = "FILE")]
    pid: Option<PathBuf>,
    /// Write the log to this file instead of stderr. After a log rotation has renamed the file, send the
    /// server the signal USR1, so that it opens the file again.
    #[arg(short, long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write each line of the log in this form: as text for people, or as a JSON object for programs, with
    /// the members `timestamp`, `level` and `message`.
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    log_format: LogFormat,
    /// Log more, to find faults: each connection of clients and other nodes.
    #[arg(short = 'D', long)]
    debug: bool,
    /// Accept only clients that log in as this user with --pass, and refuse all other clients.
    #[arg(long, value_name = "NAME", requires = "pass")]
    user: Option<String>,
    /// Set the password of --user, in plain text or as a bcrypt hash.
    #[arg(
        long,
        value_name = "PASSWORD",
        requires = "user",
        env = "TIDEGATE_PASS",
        hide_env_values = true
    )]
    pass: Option<String>,
    /// Accept only clients that present this token as their credential.
    #[arg(
        long,
        value_name = "TOKEN",
        conflicts_with = "user",
        env = "TIDEGATE_AUTH",
        hide_env_values = true
    )]
    auth: Option<String>,
    /// Require TLS of clients, but no certificate, as in nats-server. --tlscert alone does the same.
    #[arg(long, requires = "tlscert")]
    tls: bool,
    /// Require TLS of clients, and show clients the certificate in this PEM file, by which they verify the
    /// server.
    #[arg(long, value_name = "FILE", requires = "tlskey")]
    tlscert: Option<PathBuf>,
    /// Use the private key in this PEM file for the certificate of --tlscert.
    #[arg(long, value_name = "FILE", requires = "tlscert")]
    tlskey: Option<PathBuf>,
    /// Accept client certificates that an authority in this PEM file has signed, to authenticate clients by
    /// them.
    #[arg(long, value_name = "FILE", requires = "tlscert")]
    tlscacert: Option<PathBuf>,
    /// Refuse clients without a certificate that --tlscacert verifies.
    #[arg(long, requires = "tlscacert")]
    tlsverify: bool,
    /// Tell clients to connect to this address, instead of the address on which the server listens, for
    /// example behind an address translation.
    #[arg(long, alias = "client_advertise", value_name = "HOST:PORT")]
    client_advertise: Option<HostPort>,
    /// Keep streams in this directory, which one server at a time owns. Default: tidegate-data.
    #[arg(
        long,
        alias = "store_dir",
        visible_alias = "sd",
        value_name = "DIR",
        env = "TIDEGATE_DATA"
    )]
    data: Option<PathBuf>,
    /// Keep no streams, for a server that only passes messages to clients that are subscribed at the moment.
    #[arg(long, conflicts_with = "data")]
    no_streams: bool,
    /// Do nothing: nats-server needs this flag to serve streams, but this server serves streams without the
    /// flag.
    #[arg(long = "jetstream", alias = "js", hide = true)]
    jetstream: bool,
    /// Set the length of the log's segments (its files), at least 8 MiB, so that tests fill several segments.
    /// Default: 64 MiB. For tests.
    #[arg(long, value_name = "BYTES", value_parser = values::bytes, hide = true)]
    segment_bytes: Option<u64>,
    /// Write a checkpoint only after the log has grown by this many bytes since the last one, so that tests
    /// get checkpoints early. Default: 256 MiB. For tests.
    #[arg(long, value_name = "BYTES", value_parser = values::bytes, hide = true)]
    checkpoint_bytes: Option<u64>,
    /// Read the whole log again within this time, such as 12h or 3d, to find damage. Default: 3d. For tests.
    #[arg(long, value_name = "DURATION", value_parser = values::duration, hide = true)]
    scrub_period: Option<Duration>,
    #[cfg(feature = "lab")]
    #[command(flatten)]
    lab: LabArgs,
    /// End the server when its parent, the process with this id, ends, so that `tidegate cluster` leaves no
    /// nodes.
    #[arg(long, value_name = "PID", hide = true)]
    with_parent: Option<i32>,
    /// Join a cluster as a node, and listen on this address for connections of the other nodes.
    #[arg(
        long,
        alias = "cluster_listen",
        value_name = "nats://HOST:PORT",
        env = "TIDEGATE_CLUSTER"
    )]
    cluster: Option<String>,
    /// Name the cluster. All nodes of a cluster must give the same name here, so that no node joins a wrong
    /// cluster.
    #[arg(
        long,
        alias = "cluster_name",
        value_name = "NAME",
        value_parser = values::name,
        env = "TIDEGATE_CLUSTER_NAME"
    )]
    cluster_name: Option<String>,
    /// Connect to the cluster's nodes at these addresses, to join the cluster. This node's own address may be
    /// among them.
    #[arg(
        long,
        value_name = "nats-route://HOST:PORT,...",
        value_delimiter = ',',
        env = "TIDEGATE_ROUTES"
    )]
    routes: Vec<String>,
    /// Share this secret with the cluster's nodes, so that no other program can join as a node. The nodes
    /// prove to each other that they know the secret, and never send it.
    #[arg(
        long,
        alias = "cluster_secret",
        value_name = "SECRET",
        env = "TIDEGATE_CLUSTER_SECRET",
        hide_env_values = true
    )]
    cluster_secret: Option<String>,
    /// Rejoin the cluster with an empty data directory, after the loss of this node's disk: fetch the node's
    /// identity and streams from the other nodes.
    #[arg(long)]
    rejoin: bool,
    /// Encrypt the connections between nodes, and show the other nodes the certificate in this PEM file, by
    /// which they verify this node.
    #[arg(
        long,
        alias = "cluster_tlscert",
        value_name = "FILE",
        requires = "cluster_tlskey",
        requires = "cluster_tlscacert"
    )]
    cluster_tlscert: Option<PathBuf>,
    /// Use the private key in this PEM file for the certificate of --cluster-tlscert.
    #[arg(
        long,
        alias = "cluster_tlskey",
        value_name = "FILE",
        requires = "cluster_tlscert"
    )]
    cluster_tlskey: Option<PathBuf>,
    /// Accept certificates of other nodes that an authority in this PEM file has signed, and refuse all other
    /// nodes.
    #[arg(
        long,
        alias = "cluster_tlscacert",
        value_name = "FILE",
        requires = "cluster_tlscert"
    )]
    cluster_tlscacert: Option<PathBuf>,
    /// Allow the server to listen beyond this machine without credentials, and nodes to connect without
    /// encryption, for networks that the operator trusts.
    #[arg(long)]
    insecure: bool,
    /// Choose the controller that decides how much the server gathers before it writes to sockets, to trade
    /// latency for throughput; `tidegate count --help` lists the controllers. Default: knee.
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Choice>)]
    controller: Option<Choice>,
    /// Write every decision of a controller about batches to this file, one line each, for `tidegate tune
    /// --trace`. The server first empties a file that exists.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Send a signal to a running server, and exit: `ldm` makes the server close its connections slowly and
    /// end, `reload` makes it read its configuration again, `reopen` its log file, `quit` or `term` ends it,
    /// and `stop` kills it. FILE holds the server's process id, as --pid writes it.
    #[arg(long, alias = "sl", value_name = "SIGNAL=PID|FILE", value_parser = str::parse::<Sent>)]
    signal: Option<Sent>,
    /// Print version; so does -V alone.
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    unused: UnusedArgs,
    /// Use nats-server's defaults, for its command lines: listen on every address, and serve streams only if
    /// the settings ask for them.
    #[arg(long, hide = true)]
    as_nats_server: bool,
}

/// Flags of nats-server that change nothing in this server. It accepts them so that nats-server's command
/// lines start it.
#[derive(Args, Clone, Copy, Debug)]
struct UnusedArgs {
    /// Do nothing, because this server does not log the messages of clients; the flag exists for
    /// nats-server's command lines.
    #[arg(short = 'V', long, hide = true, action = ArgAction::Count)]
    trace: u8,
    /// Do nothing, because each line of the log has its time; the flag exists for nats-server's command
    /// lines.
    #[arg(short = 'T', long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    logtime: Option<bool>,
    /// Do nothing, because a node tries its routes until they answer; the flag exists for nats-server's
    /// command lines.
    #[arg(long = "connect_retries", hide = true)]
    connect_retries: Option<u64>,
}

impl UnusedArgs {
    fn warn(self) {
        if self.trace > 0 {
            tracing::warn!(
                "-V has no effect, because this server does not log the messages of clients"
            );
        }
        if self.logtime == Some(false) {
            tracing::warn!(
                "--logtime=false has no effect, because the server writes the time into each line of its log"
            );
        }
        if self.connect_retries.is_some() {
            tracing::warn!(
                "--connect_retries has no effect, because a node tries its routes until they answer"
            );
        }
    }
}

impl ServeArgs {
    /// Returns the settings, or an error if a server could not use the settings or the files that they name.
    pub(crate) fn checked(&self) -> anyhow::Result<Settings> {
        let (settings, report) = self.settings()?;
        self.check(&settings, &report)?;
        Ok(settings)
    }

    /// Returns the settings for a reload, and warns the operator of settings without effect.
    fn reloaded(&self) -> anyhow::Result<Settings> {
        let (settings, report) = self.settings()?;
        self.check(&settings, &report)?;
        check::warn(&report);
        Ok(settings)
    }

    /// Checks the settings and the files that they name, and that the configuration has no setting that the
    /// server refuses.
    fn check(&self, settings: &Settings, report: &Report) -> anyhow::Result<()> {
        if let Some(path) = &self.config
            && let Some(error) = ConfigError::of(path, report)
        {
            return Err(Usage::new(error).into());
        }
        settings.sessions.check_credentials().map_err(Usage::new)?;
        settings.check_exposure().map_err(Usage::new)?;
        settings.check_cluster().map_err(Usage::new)?;
        Server::check(settings).map_err(Usage::new)?;
        Ok(())
    }

    /// Returns the settings: flags override the file, and the file overrides the defaults. The report lists
    /// which settings of the file the server carries out, ignores or refuses.
    fn settings(&self) -> anyhow::Result<(Settings, Report)> {
        let mut report = Report::default();
        let mut s = Settings {
            streams: Some(StreamSettings::new(DATA_DIRECTORY.into())),
            ..Settings::default()
        };
        if let Some(path) = &self.config {
            report = read_file(path, &mut s).map_err(Usage::new)?;
        }
        if let Some(directory) = &self.data {
            s.streams
                .get_or_insert_with(|| StreamSettings::new(DATA_DIRECTORY.into()))
                .directory
                .clone_from(directory);
        }
        if let Some(streams) = &mut s.streams {
            if let Some(bytes) = self.segment_bytes {
                // A segment consists of whole pages of 4096 bytes, so this code rounds the length down. 8 MiB
                // have room for a few of the largest messages.
                streams.segment_bytes = (bytes & !4095).max(8 << 20);
            }
            streams.checkpoint_bytes = self.checkpoint_bytes.unwrap_or(streams.checkpoint_bytes);
            streams.scrub_period = self.scrub_period.unwrap_or(streams.scrub_period);
            otlp::Settings::from_environment()
                .map_err(Usage::new)?
                .follow(streams);
            #[cfg(feature = "lab")]
            self.lab.apply(streams);
        }
        let of_streams = |s: &Named| s.name.starts_with("jetstream");
        let names_streams =
            self.jetstream || self.data.is_some() || report.taken.iter().any(of_streams);
        if self.no_streams || self.as_nats_server && !names_streams {
            s.streams = None;
        }
        if self.as_nats_server && !report.taken.iter().any(names_host) {
            s.host = "0.0.0.0".into();
        }
        if let Some(addr) = &self.addr {
            s.host.clone_from(addr);
        }
        if let Some(port) = self.port {
            s.port = port;
        }
        if let Some(port) = self.http_port {
            s.http_port = Some(port);
        }
        if self.dashboard {
            s.dashboard = Some(true);
        }
        if let (Some(name), Some(password)) = (&self.user, &self.pass) {
            s.sessions.token = None;
            s.sessions.users.retain(|u| u.account == Account::System);
            s.sessions.users.push(Arc::new(User {
                name: name.clone(),
                secret: Secret::new(password),
                permissions: None,
                account: Account::Global,
            }));
        }
        if let Some(token) = &self.auth {
            s.sessions.users.retain(|u| u.account == Account::System);
            s.sessions.token = Some(Secret::new(token));
        }
        if let (Some(cert), Some(key)) = (&self.tlscert, &self.tlskey) {
            let old = s.tls.take();
            s.tls = Some(TlsSettings {
                cert_file: cert.clone(),
                key_file: key.clone(),
                ca_file: self.tlscacert.clone(),
                verify: self.tlsverify,
                timeout: old.as_ref().map_or(Duration::from_secs(2), |t| t.timeout),
                handshake_first: old
                    .as_ref()
                    .map_or(HandshakeFirst::Never, |t| t.handshake_first),
                connection_rate_limit: old.as_ref().map_or(0, |t| t.connection_rate_limit),
                only_tls13: old.as_ref().is_some_and(|t| t.only_tls13),
                maps_users: old.as_ref().is_some_and(|t| t.maps_users),
                cipher_suites: old.as_ref().map_or(Vec::new(), |t| t.cipher_suites.clone()),
                curves: old.map_or(Vec::new(), |t| t.curves),
            });
        }
        self.cluster(&mut s)?;
        let asks_for_streams = names_streams || self.cluster.is_some() || self.config.is_none();
        s.server_name = self.name.clone().or(s.server_name);
        s.client_advertise = self.client_advertise.clone().or(s.client_advertise);
        s.pid_file = self.pid.clone().or(s.pid_file);
        s.log_file = self.log.clone().or(s.log_file);
        s.controller = self.controller.unwrap_or(s.controller);
        s.record = self.record.clone().or(s.record);
        s.debug |= self.debug;
        s.insecure |= self.insecure;
        report.remarks.extend(s.complete_cluster(asks_for_streams));
        Ok((s, report))
    }

    /// Sets the cluster settings from the flags. A flag overrides the same setting of the file.
    fn cluster(&self, s: &mut Settings) -> anyhow::Result<()> {
        let said = self.cluster.is_some()
            || self.cluster_name.is_some()
            || self.cluster_tlscert.is_some()
            || !self.routes.is_empty();
        if !said && s.cluster.is_none() {
            if self.rejoin {
                let text = "--rejoin is for a node of a cluster: say --cluster and --routes, too";
                return Err(Usage::new(text).into());
            }
            return Ok(());
        }
        let cluster = s.cluster.get_or_insert_default();
        cluster.rejoins = self.rejoin;
        if let Some(secret) = &self.cluster_secret {
            cluster.secret = Some(ClusterSecret::new(secret.clone()));
        }
        if let Some(name) = &self.cluster_name {
            cluster.name.clone_from(name);
        }
        if let Some(listen) = &self.cluster {
            cluster.listen(listen).map_err(Usage::new)?;
        }
        if !self.routes.is_empty() {
            cluster.routes.clear();
        }
        for route in &self.routes {
            cluster.add_route(route.trim()).map_err(Usage::new)?;
        }
        let files = (
            &self.cluster_tlscert,
            &self.cluster_tlskey,
            &self.cluster_tlscacert,
        );
        if let (Some(cert), Some(key), Some(ca)) = files {
            let old = cluster.tls.take();
            cluster.tls = Some(ClusterTls {
                cert_file: cert.clone(),
                key_file: key.clone(),
                ca_file: ca.clone(),
                timeout: old.map_or(HANDSHAKE_MAX, |tls| tls.timeout),
            });
        }
        Ok(())
    }
}

/// Returns whether this setting of a file names the address for clients, which then overrides the default.
fn names_host(setting: &Named) -> bool {
    ["host", "net", "listen", "addr"].contains(&&*setting.name)
}

/// Flags with which `tidegate-bench` compares other ways to write streams with this server's own way.
#[cfg(feature = "lab")]
#[derive(Args, Clone, Copy, Debug)]
struct LabArgs {
    /// Delay each sync of the log by this time, to imitate a slower disk in a measurement.
    #[arg(long, value_name = "DURATION", value_parser = values::latency, hide = true)]
    slow_sync: Option<Duration>,
    /// Sync the log at once, to measure the gain of the wait: without this flag, a sync waits a moment for
    /// clients that are about to publish again.
    #[arg(long, hide = true)]
    no_anticipation: bool,
    /// Sync the log for at most this many clients at once, without a wait, to measure the gain of the
    /// controller and the predictions of `tidegate tune`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), hide = true)]
    sync_limit: Option<u64>,
    /// Write replicated streams as one of the steps from nats-server's way to this server's way, to measure
    /// the gain of each step: a (an entry for each message, which the leader syncs twice), b, c, d, e,
    /// parallel, or all (this server's own way). Default: all.
    #[arg(long, value_name = "STEP", value_parser = str::parse::<RaftStep>, requires = "cluster", hide = true)]
    raft_step: Option<RaftStep>,
    /// Use fixed limits instead of a controller, to measure the controller's gain: the most commands in an
    /// entry, and the most entries that the leader has proposed and not yet applied, such as 64x4.
    #[arg(long, value_name = "COMMANDSxENTRIES", value_parser = str::parse::<FixedEntries>, hide = true)]
    fixed_entries: Option<FixedEntries>,
}

#[cfg(feature = "lab")]
impl LabArgs {
    fn apply(self, streams: &mut StreamSettings) {
        streams.lab.sync_delay = self.slow_sync.unwrap_or_default();
        streams.lab.sync_limit = self.sync_limit;
        streams.lab.raft_step = self.raft_step.unwrap_or_default();
        streams.lab.fixed_entries = self.fixed_entries;
        streams.anticipation &= !self.no_anticipation;
    }
}

/// The form of the lines of the server's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text for people: the time, the level and the message.
    #[default]
    Text,
    /// A JSON object in one line, for programs that collect logs.
    Json,
}

/// Rewrites `serve -V` as a request for the version, as with all other commands. With other flags beside it,
/// -V keeps the meaning that it has in nats-server's command lines.
pub(crate) fn with_version(args: Vec<OsString>) -> Vec<OsString> {
    match &args[..] {
        [program, serve, flag] if serve == "serve" && flag == "-V" => {
            vec![program.clone(), serve.clone(), "--version".into()]
        }
        _ => args,
    }
}

/// Rewrites Go's spelling of `serve`'s long flags with one dash (`-js`, `-sd DIR`) into two dashes, as clap
/// needs.
pub(crate) fn with_two_dashes(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let longs: Vec<&str> = command
        .get_arguments()
        .flat_map(|a| {
            let aliases = a.get_all_aliases().unwrap_or_default();
            a.get_long().into_iter().chain(aliases)
        })
        .filter(|long| long.len() > 1)
        .collect();
    let mut serves = false;
    let respelled = |arg: OsString| {
        let name = arg.to_str().and_then(|a| a.strip_prefix('-'));
        match name.and_then(|name| name.split('=').next()) {
            Some(name) if longs.contains(&name) => {
                let mut long = OsString::from("-");
                long.push(arg);
                long
            }
            _ => arg,
        }
    };
    args.map(|arg| {
        serves |= arg == "serve";
        if serves { respelled(arg) } else { arg }
    })
    .collect()
}

/// Runs the server until a signal ends it.
///
/// # Errors
/// The arguments or the configuration are invalid, the server cannot listen, or its log failed.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    if let Some(sent) = &args.signal {
        return sent.send().map(|()| ExitCode::SUCCESS);
    }
    let (settings, report) = args.settings()?;
    if args.test {
        let mut out = Vec::new();
        check::write(&report, &mut out)?;
        output::print(String::from_utf8_lossy(&out))?;
        args.check(&settings, &report)?;
        output::print("the configuration is good\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    args.check(&settings, &report)?;
    let log = log_to(&settings, args.log_format)?;
    if args.log_format == LogFormat::Text {
        return serve(args, settings, &report, log);
    }
    log_panics();
    let has_file = log.is_some();
    let served = serve(args, settings, &report, log);
    let Err(e) = served else {
        return served;
    };
    // A program that collects the log finds the reason of the end in it. If the log is a file, the error also
    // goes to standard error, as text.
    tracing::error!("{}", crate::line(&e));
    match has_file {
        true => Err(e),
        false => Ok(crate::failed(&e)),
    }
}

/// Makes panics lines of the log, so that no line on standard error is without its form.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => tracing::error!("{panic}\n{trace}"),
            _ => tracing::error!("{panic}"),
        }
    }));
}

/// Runs the server with these settings, once the log is set up.
fn serve(
    args: &ServeArgs,
    settings: Settings,
    report: &Report,
    log: Option<Arc<LogFile>>,
) -> anyhow::Result<ExitCode> {
    if log.is_none()
        && args.log_format == LogFormat::Text
        && face::chats()
        && std::io::stderr().is_terminal()
    {
        // Without the working directory, the data directory stands as the user gave it.
        let working = std::env::current_dir().unwrap_or_default();
        face::complain(banner::text(&settings, &working));
    }
    let is_limited = allow_files();
    if let Some(parent) = args.with_parent {
        end_with(parent)?;
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2])?;
    // If the settings let other machines use the monitor, the monitor listens where clients do, as in
    // nats-server.
    let shared = Some(&settings.host).filter(|_| settings.insecure);
    let http_host = settings.http_host.as_ref().or(shared).cloned();
    let (http_port, pid_file) = (settings.http_port, settings.pid_file.clone());
    let options = MonitorOptions {
        host: http_host.unwrap_or_else(|| "127.0.0.1".into()),
        port: http_port.unwrap_or(0),
        base: settings.http_base_path.clone(),
        dashboard: settings.dashboard,
        dashboard_hosts: settings.dashboard_hosts.clone(),
        message_token: settings.message_token.clone(),
        metrics_streams: settings.metrics_streams,
        metrics_consumers: settings.metrics_consumers,
    };
    let otlp = otlp::Settings::from_environment().map_err(Usage::new)?;
    let (insecure, name) = (settings.insecure, settings.server_name.clone());
    let kept = settings.streams.as_ref().map(|s| absolute(&s.directory));
    let unread = kept.as_deref().and_then(store_dir::warning);
    let server = Server::listen(settings)?;
    // Before the monitor, of which readers may fill the queue of commands while the server opens its data.
    let loader = args.clone();
    let load = move || loader.reloaded().map_err(|e| format!("{e:#}"));
    serve_system(server.handle(), Box::new(load))?;
    // The addresses come first, because a person or a script looks for them; remarks and the opening of the
    // data, which may take long, come behind.
    tracing::info!("Listening for client connections on {}", server.address());
    if let Some(address) = server.cluster_address() {
        tracing::info!("Listening for connections of the cluster's nodes on {address}");
    }
    match kept {
        Some(directory) => tracing::info!("Keeping streams in {}", directory.display()),
        None => tracing::info!("Keeping no streams"),
    }
    let monitor = match http_port {
        Some(port) => {
            let host = &options.host;
            let monitor = Monitor::start_with(&options, server.handle());
            let monitor =
                monitor.with_context(|| format!("cannot listen for HTTP on {host}:{port}"))?;
            tracing::info!("Starting http monitor on {}", monitor.address());
            if monitor.shows_dashboard() {
                let (at, base) = (monitor.address(), &options.base);
                tracing::info!("The dashboard is at http://{at}{base}/dashboard");
            }
            Some(monitor)
        }
        None => None,
    };
    tracing::info!("Starting tidegate {}", env!("CARGO_PKG_VERSION"));
    if insecure {
        tracing::warn!(
            "--insecure (or `insecure` in the configuration) is on, so the server serves any program that reaches a port without credentials: protect such ports in another way, for example with a firewall"
        );
    }
    if let Some(unread) = unread {
        tracing::warn!("{unread}");
    }
    check::warn(report);
    args.unused.warn();
    if let Err(e) = is_limited {
        tracing::warn!(
            "the server cannot raise its limit of open files, and may accept fewer clients: {e}"
        );
    }
    let mut server = server.open_data()?;
    let series = (options.metrics_streams, options.metrics_consumers);
    let export = otlp.start(&mut server, name.as_deref(), series)?;
    if let Some(path) = &pid_file {
        // The file holds only the digits, as nats-server writes them, because other programs parse the whole
        // file.
        std::fs::write(path, std::process::id().to_string())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    tracing::info!(
        "Server is ready: the server has opened its data and its ports, and accepts clients"
    );
    let (handle, again) = (server.handle(), args.clone());
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in &mut signals {
                match signal {
                    SIGUSR1 => reopen(log.as_deref()),
                    _ => obey(signal, &handle, &again),
                }
            }
        })?;
    // The kernel hands signals to the main thread where it can. The main thread only waits, because a sync on
    // a disk that hangs would delay the signals.
    let serving = std::thread::Builder::new().name("loop".into());
    let serving = serving.spawn(move || server.run())?;
    let served = serving.join();
    export.end();
    served.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    drop(monitor);
    if let Some(path) = &pid_file {
        // If another program has removed the file already, the removal fails and nothing is left to do.
        let _ = std::fs::remove_file(path);
    }
    tracing::info!("Server Exiting: the server has closed all connections");
    Ok(interrupt::exit_code())
}

/// Raises the limit of open files to the most this process may request, because each segment of the log and
/// each connection has a descriptor. The default limit on most systems is about a thousand.
fn allow_files() -> rustix::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, all)
}

/// Returns the path from the root, for people who look for the directory; unchanged without a working
/// directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Makes the kernel send SIGTERM to this process when its parent ends, so that no node outlives its cluster.
fn end_with(parent: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before this process asked for the signal. Then no signal comes, so this
    // process looks for its parent itself.
    if getppid().map(Pid::as_raw_nonzero).map(NonZeroI32::get) != Some(parent) {
        bail!("the process {parent}, which this was to end with, has ended");
    }
    Ok(())
}

fn reopen(log: Option<&LogFile>) {
    match log.map(LogFile::reopen) {
        Some(Ok(())) => tracing::info!(
            "the server has opened its log file again, because it got the signal USR1, for example from a log rotation"
        ),
        Some(Err(e)) => tracing::error!(
            "the server got the signal USR1 but cannot open its log file again, and goes on with the old file: {e}"
        ),
        None => tracing::info!(
            "the server ignores the signal USR1, because it has no log file to open again"
        ),
    }
}

fn obey(signal: i32, handle: &Handle, args: &ServeArgs) {
    let outcome = match signal {
        SIGHUP => {
            tracing::info!("Reloading server configuration: the server got the signal HUP");
            match args.reloaded() {
                Ok(settings) => handle.reload(settings),
                Err(e) => {
                    tracing::error!(
                        "the reload failed: {e:#}: the server keeps its old configuration"
                    );
                    return;
                }
            }
        }
        SIGUSR2 => handle.lame_duck(),
        _ => handle.drain(),
    };
    if let Err(e) = outcome {
        tracing::error!("the server cannot act on the signal {signal}: {e}");
    }
}

/// Sets up the log. Returns the log's file, which USR1 reopens; `None` if the log goes to standard error.
fn log_to(settings: &Settings, format: LogFormat) -> anyhow::Result<Option<Arc<LogFile>>> {
    let level = face::level(settings.debug);
    // The client library for other clusters would log each connection, so the filter passes only its
    // warnings. This server itself logs each fault there.
    let filter = Targets::new()
        .with_default(level)
        .with_target("async_nats", level.min(LevelFilter::WARN));
    let file = settings.log_file.as_ref().map(|path| {
        LogFile::open(path).with_context(|| format!("cannot write the log {}", path.display()))
    });
    let file = file.transpose()?;
    let (writer, colors) = match &file {
        Some(file) => (BoxMakeWriter::new(Arc::clone(file)), false),
        None => (BoxMakeWriter::new(std::io::stderr), face::colors()),
    };
    let lines = tracing_subscriber::fmt::layer()
        // The layer would report a failed write on standard error, which may be what failed.
        .log_internal_errors(false)
        .with_target(false)
        .with_writer(writer);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(colors).boxed(),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            lines.with_span_list(false).boxed()
        }
    };
    let log = tracing_subscriber::registry().with(filter).with(lines);
    if let Err(e) = log.try_init() {
        bail!("the log cannot be set up: {e}");
    }
    Ok(file)
}
