//! The arguments with which the user runs `tidegate send` and `tidegate receive`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{ADDRESS, Format};
use crate::values::{bytes, duration, host_and_port, record_bytes, session};

/// The arguments with which the user runs `tidegate receive`.
#[derive(Args, Debug)]
pub(crate) struct ReceiveArgs {
    /// Listen on this address and port for senders; port 0 lets the system choose a free port. Addresses
    /// beyond this machine need --tls-cert and --token-file.
    #[arg(long, value_name = "ADDR", default_value = ADDRESS, value_parser = host_and_port)]
    pub(crate) listen: String,
    /// Append the records to this file instead of writing them to standard output. The receiver syncs the
    /// file before it acknowledges records. Each session continues where it stopped, even after a kill of the
    /// sender or the receiver, because the receiver keeps the positions of the sessions in FILE.tidegate.
    #[arg(long, value_name = "FILE")]
    pub(crate) append: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) records: RecordArgs,
    /// Allow the receiver to listen beyond this machine without TLS or without a token, for networks that the
    /// user trusts: any machine there can send records, or read them on the way.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Require TLS, and show senders the certificate in this PEM file, by which they verify the receiver.
    /// Intermediate certificates may follow in the file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Use the private key in this PEM file for the certificate of --tls-cert.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept only senders that present the secret in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The arguments with which the user runs `tidegate send`.
#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// Send to the `tidegate receive` that listens at this name or address, with a port.
    #[arg(value_name = "ADDR", value_parser = host_and_port)]
    pub(crate) address: String,
    /// Ship the records of this file; `-` is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Continue the session of this name: ship a file from the first record that the receiver lacks. One
    /// sender at a time can use a name; a newer sender replaces the older one. Default: a new session, which
    /// no later sender can continue.
    #[arg(long, value_name = "NAME", value_parser = session)]
    pub(crate) session: Option<String>,
    /// Follow the file as it grows, like `tail -F`: wait for it if it does not exist, and go on in its
    /// successor after a rotation that renames it, or that copies and cuts it. With --session, a later sender
    /// goes on where this one stopped, in a rotated file too.
    #[arg(long, conflicts_with = "spool")]
    pub(crate) follow: bool,
    /// Keep the place that the session has reached in this file. Default: FILE.tidegate-sent-NAME.
    #[arg(long, value_name = "FILE", requires = "follow", requires = "session")]
    pub(crate) state: Option<PathBuf>,
    /// Keep unacknowledged records of standard input in this directory, so that they survive a restart. After
    /// a restart, the program sends these records first.
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// Limit the spool to this many bytes, such as 512M or 4GB (in powers of 1024), to bound the disk space.
    /// The program does not read standard input while the spool is full.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes, requires = "spool")]
    pub(crate) spool_limit: u64,
    #[command(flatten)]
    pub(crate) records: RecordArgs,
    /// Try to reach the receiver for this long, such as 500ms, 30s, 5m or 2h, then fail. After Ctrl-C, wait
    /// this long for each further acknowledgement of the records sent, then fail; a second Ctrl-C ends the
    /// wait. Default: one attempt at the start, attempts for 60s after the loss of a connection, and 10s
    /// after Ctrl-C.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Use TLS, and trust only the certificates in this PEM file, to verify the receiver. The receiver's
    /// certificate must have the name in ADDR.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Authenticate to the receiver with the secret in this file. The program sends the secret only over TLS
    /// or within this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The form of a record, which the user must set alike for sender and receiver.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RecordArgs {
    /// Choose how the programs cut the input into records: lines, or records with a length in front. Sender
    /// and receiver must choose the same form.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Limit a record to this many bytes, such as 64K or 4MB (in powers of 1024), to bound the memory. The
    /// receiver may need a few times as much memory for each connection, but bounds the memory of all
    /// connections together.
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = record_bytes)]
    pub(crate) max_record: u32,
}
