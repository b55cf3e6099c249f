//! The setup of a connection to Redis: the socket, TLS, and the commands that log in (`HELLO`, `AUTH`,
//! `CLIENT SETNAME`, `SELECT`).

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::command::{Cmd, cmd};
use crate::config::{Login, Protocol};
use crate::error::ConnectError;
use crate::link::Link;
use crate::reply::{ServerError, ServerErrorKind, Value};
use crate::resp::{Decoder, Limits, ProtocolError};
use crate::wire::Wire;

/// A connection that has logged in and is ready for commands.
pub(crate) struct Ready {
    pub(crate) link: Link,
    pub(crate) decoder: Decoder,
    pub(crate) protocol: u8,
}

/// Connects to a server and logs in, within the connect timeout, so that the connection is ready for
/// commands.
pub(crate) async fn establish(
    login: &Login,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Ready, ConnectError> {
    tokio::time::timeout(login.connect_timeout, log_in(login, tls))
        .await
        .unwrap_or_else(|_| Err(ConnectError::TimedOut(login.address.to_string())))
}

async fn log_in(login: &Login, tls: Option<&Arc<ClientConfig>>) -> Result<Ready, ConnectError> {
    let limits = Limits {
        reply_bytes_max: login.reply_bytes_max,
    };
    let mut ready = Ready {
        link: Link::connect(&login.address, tls).await?,
        decoder: Decoder::new(limits),
        protocol: 2,
    };
    if login.protocol == Protocol::Best {
        match ready.exchange(&hello(login)).await? {
            Value::Error(e) if knows_no_hello(&e) => {}
            Value::Error(e) => return Err(ConnectError::Refused(e)),
            Value::Map(_) => ready.protocol = 3,
            _ => return Err(ConnectError::Protocol(ProtocolError::Unsupported)),
        }
    }
    if ready.protocol == 2 {
        if let Some(password) = &login.password {
            ready
                .must(&cmd("AUTH").arg(&login.user).arg(password))
                .await?;
        }
        if let Some(name) = &login.name {
            ready.must(&cmd("CLIENT SETNAME").arg(name)).await?;
        }
        if login.password.is_none() {
            // If a RESP2 server requires a password, it says so only in its reply to a command, so the client
            // sends `PING`.
            ready.must(&cmd("PING")).await?;
        }
    }
    if login.db != 0 {
        ready.must(&cmd("SELECT").arg(login.db)).await?;
    }
    Ok(ready)
}

fn hello(login: &Login) -> Cmd {
    let mut hello = cmd("HELLO").arg("3");
    if let Some(password) = &login.password {
        let user = login.user.as_deref().unwrap_or("default");
        hello = hello.arg("AUTH").arg(user).arg(password);
    }
    if let Some(name) = &login.name {
        hello = hello.arg("SETNAME").arg(name);
    }
    hello
}

/// Returns whether the refusal of `HELLO` means that the server does not speak RESP3: servers before version
/// 6 do not know the command, and some servers know it without version 3.
fn knows_no_hello(e: &ServerError) -> bool {
    match e.kind() {
        ServerErrorKind::NoProto => true,
        ServerErrorKind::Err => e.line().to_ascii_lowercase().contains("unknown command"),
        _ => false,
    }
}

impl Ready {
    async fn must(&mut self, cmd: &Cmd) -> Result<(), ConnectError> {
        match self.exchange(cmd).await? {
            Value::Error(e) => Err(ConnectError::Refused(e)),
            _ => Ok(()),
        }
    }

    async fn exchange(&mut self, cmd: &Cmd) -> Result<Value, ConnectError> {
        let mut out = Wire::default();
        cmd.encode(&mut out);
        while !out.is_written() || self.link.holds_bytes() {
            let n = std::future::poll_fn(|cx| self.link.poll_write(cx, &out))
                .await
                .map_err(broken)?;
            out.wrote(n);
        }
        loop {
            match self.decoder.next().map_err(ConnectError::Protocol)? {
                Some(Value::Push(_)) => {}
                Some(value) => return Ok(value),
                None => {
                    let Self { link, decoder, .. } = self;
                    let n = std::future::poll_fn(|cx| link.poll_read(cx, decoder.space()))
                        .await
                        .map_err(broken)?;
                    if n == 0 {
                        return Err(ConnectError::Closed);
                    }
                    decoder.filled(n);
                }
            }
        }
    }
}

fn broken(e: io::Error) -> ConnectError {
    match e.kind() {
        io::ErrorKind::InvalidData => ConnectError::Tls(e.to_string()),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => ConnectError::Closed,
        _ => ConnectError::Io {
            to: "the server".to_owned(),
            source: Arc::new(e),
        },
    }
}
