//! A contestant without a client, for a comparison at rates at which pipelining cannot help: each caller has
//! a plain connection to Redis, writes a command and reads the reply.

use tidegate_load::{Ask, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A caller that has a plain connection to Redis for itself.
pub(super) struct Plain {
    addr: String,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

/// Creates another caller, which opens its own connection at its first call.
impl Clone for Plain {
    fn clone(&self) -> Self {
        Self {
            addr: self.addr.clone(),
            stream: None,
            buffer: Vec::new(),
        }
    }
}

impl Client for Plain {
    async fn connect(ask: &Ask) -> Result<Self, String> {
        Ok(Self {
            addr: ask.addr.clone(),
            stream: None,
            buffer: Vec::new(),
        })
    }

    async fn publish(&mut self, channel: &str, message: &str) -> Result<(), String> {
        self.call(&["PUBLISH", channel, message]).await.map(drop)
    }

    async fn get(&mut self, key: &str) -> Result<usize, String> {
        self.call(&["GET", key]).await
    }

    async fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        self.call(&["SET", key, value]).await.map(drop)
    }
}

impl Plain {
    /// Sends a command to Redis and returns the length in bytes of the reply's value.
    async fn call(&mut self, args: &[&str]) -> Result<usize, String> {
        let text = |e: std::io::Error| e.to_string();
        if self.stream.is_none() {
            let stream = TcpStream::connect(&self.addr).await.map_err(text)?;
            stream.set_nodelay(true).map_err(text)?;
            self.stream = Some(stream);
        }
        let Self { stream, buffer, .. } = self;
        let stream = stream.as_mut().ok_or("not connected")?;
        encode(args, buffer);
        stream.write_all(buffer).await.map_err(text)?;
        buffer.clear();
        loop {
            if let Some(len) = reply(buffer)? {
                return Ok(len);
            }
            if stream.read_buf(buffer).await.map_err(text)? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}

fn encode(args: &[&str], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        into.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
    }
}

/// Returns the length in bytes of the value in a reply; `None` while the reply is incomplete.
fn reply(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let (kind, line) = (bytes[0], String::from_utf8_lossy(&bytes[1..end]));
    match kind {
        b'$' => {
            let len: usize = line.parse().map_err(|_| format!("no value: ${line}"))?;
            Ok((bytes.len() >= end + 2 + len + 2).then_some(len))
        }
        b'+' | b':' => Ok(Some(line.len())),
        _ => Err(format!("Redis answered {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_says() {
        for (bytes, len) in [
            ("", None),
            (":1", None),
            (":12\r\n", Some(2)),
            ("+OK\r\n", Some(2)),
            ("$5\r\nhel", None),
            ("$5\r\nhello\r", None),
            ("$5\r\nhello\r\n", Some(5)),
        ] {
            assert_eq!(reply(bytes.as_bytes()), Ok(len), "{bytes:?}");
        }
        assert!(reply(b"-ERR no\r\n").is_err());
        assert!(reply(b"$-1\r\n").is_err());
        let mut wire = Vec::new();
        encode(&["GET", "key:1"], &mut wire);
        assert_eq!(wire, b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n");
    }
}
