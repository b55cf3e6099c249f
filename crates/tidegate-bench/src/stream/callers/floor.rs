//! The floors below every system: a bare write with a sync, and a bare round trip over a socket.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::fdatasync;

use super::Running;
use super::load::Caller;

/// The size of the file that the bench writes again and again. All its blocks are there before the
/// measurement, so that a sync need not write metadata.
const FILE_BYTES: u64 = 16 << 20;
/// The bytes of an answer, about as many as an acknowledgement has.
const ANSWER: [u8; 48] = [b'a'; 48];

/// A file on the disk of the servers.
pub(super) struct Disk {
    path: PathBuf,
    bytes: usize,
}

impl Disk {
    /// Creates the file with all its blocks.
    pub(super) fn open(directory: &Path, bytes: usize) -> anyhow::Result<Self> {
        let path = directory.join("bare");
        let mut file = File::create(&path)?;
        for _ in 0..FILE_BYTES >> 20 {
            file.write_all(&vec![1; 1 << 20])?;
        }
        file.sync_all()?;
        Ok(Self { path, bytes })
    }
}

impl Running for Disk {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        Ok(Box::new(Writer {
            file: OpenOptions::new().write(true).open(&self.path)?,
            block: vec![2; self.bytes],
            at: 0,
        }))
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }
}

struct Writer {
    file: File,
    block: Vec<u8>,
    at: u64,
}

impl Caller for Writer {
    fn call(&mut self) -> anyhow::Result<()> {
        self.file.write_all_at(&self.block, self.at)?;
        fdatasync(&self.file)?;
        let bytes = self.block.len() as u64;
        self.at = (self.at + bytes) % (FILE_BYTES - bytes);
        Ok(())
    }
}

/// A server that answers each message as soon as it has read it, with a thread for each caller.
pub(super) struct Echo {
    addr: SocketAddr,
    bytes: usize,
}

impl Echo {
    /// Starts the server. It ends with the process of the bench, and each of its threads with its caller.
    pub(super) fn start(bytes: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                std::thread::spawn(move || answer(socket, bytes));
            }
        });
        Ok(Self { addr, bytes })
    }
}

/// Answers until the caller closes the connection.
fn answer(mut socket: TcpStream, bytes: usize) {
    let mut message = vec![0; bytes];
    while socket.set_nodelay(true).is_ok()
        && socket.read_exact(&mut message).is_ok()
        && socket.write_all(&ANSWER).is_ok()
    {}
}

impl Running for Echo {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        let socket = TcpStream::connect(self.addr)?;
        socket.set_nodelay(true)?;
        let message = vec![b'x'; self.bytes];
        Ok(Box::new(Asker { socket, message }))
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }
}

struct Asker {
    socket: TcpStream,
    message: Vec<u8>,
}

impl Caller for Asker {
    fn call(&mut self) -> anyhow::Result<()> {
        self.socket.write_all(&self.message)?;
        let mut answer = ANSWER;
        Ok(self.socket.read_exact(&mut answer)?)
    }
}
