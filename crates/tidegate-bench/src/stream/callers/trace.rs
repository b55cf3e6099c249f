//! Reads the system calls of a server, as strace prints them, and judges for each answer whether a sync lies
//! between the request and the answer. Pure.
//!
//! strace prints the begin and the end of every call in one order. It holds a thread until it has printed
//! the end of its call, so a sync has ended if the trace says so. A sync counts if it begins after the server
//! has read the request, and ends before the server begins to write the answer. Before that it could not
//! cover the message, and after that it comes too late.
//!
//! strace must print strings in hexadecimal form (`-xx`) and the payload of a request must be a run of the
//! letter x.

use std::collections::HashMap;

/// The begin of a payload in a string of strace: the letter x, eight times.
const PAYLOAD: &str = "\\x78\\x78\\x78\\x78\\x78\\x78\\x78\\x78";
/// The calls that the judgement needs, for the flag of strace.
pub(super) const CALLS: &str = "trace=read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwritev2,\
     fsync,fdatasync,sync,syncfs,sync_file_range,msync,io_uring_enter";

/// The judgement of one server. It sees the lines of a trace in their order.
pub(super) struct Judge<'a> {
    is_answer: &'a dyn Fn(&[u8]) -> bool,
    /// The number of the line.
    at: u64,
    /// The call that a thread has begun and not ended, by the thread.
    running: HashMap<u32, Call>,
    request: Option<Request>,
    verdict: Verdict,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// The socket of the caller.
    socket: u32,
    /// The line at which the server had read it.
    read_at: u64,
    is_synced: bool,
}

struct Call {
    name: String,
    arguments: String,
    /// The line at which the call began.
    at: u64,
}

/// The answers of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// For each answer, in their order, whether a sync lies before it.
    pub(super) answers: Vec<bool>,
    /// True if the server uses io_uring: the trace does not show the syncs in it.
    pub(super) has_ring: bool,
}

impl<'a> Judge<'a> {
    /// Creates the judgement of a server with answers that `is_answer` recognizes by their first bytes.
    pub(super) fn new(is_answer: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Self {
            is_answer,
            at: 0,
            running: HashMap::new(),
            request: None,
            verdict: Verdict::default(),
        }
    }

    /// Sees the next line of the trace. Ignores lines about signals and about threads that end.
    pub(super) fn line(&mut self, line: &str) {
        self.at += 1;
        let Some((thread, rest)) = line.trim_start().split_once(' ') else {
            return;
        };
        let Ok(thread) = thread.parse() else { return };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((name, rest)) = resumed.split_once(" resumed>") else {
                return;
            };
            let begun = self.running.remove(&thread);
            if let Some(call) = begun.filter(|call| call.name == name) {
                self.ended(&call, rest);
            }
            return;
        }
        let Some((name, arguments)) = rest.split_once('(') else {
            return;
        };
        let unfinished = arguments.strip_suffix("<unfinished ...>");
        let call = Call {
            name: name.into(),
            arguments: unfinished.unwrap_or(arguments).into(),
            at: self.at,
        };
        self.began(&call);
        match unfinished {
            Some(_) => drop(self.running.insert(thread, call)),
            None => self.ended(&call, arguments),
        }
    }

    /// Returns the judgement of the lines so far.
    pub(super) fn verdict(self) -> Verdict {
        self.verdict
    }

    fn began(&mut self, call: &Call) {
        if !matches!(&*call.name, "write" | "writev" | "sendto" | "sendmsg") {
            self.verdict.has_ring |= call.name == "io_uring_enter";
            return;
        }
        let to = file(&call.arguments);
        let request = self.request.filter(|request| Some(request.socket) == to);
        if let Some(request) = request
            && (self.is_answer)(&bytes(&call.arguments))
        {
            self.verdict.answers.push(request.is_synced);
            self.request = None;
        }
    }

    /// Sees the end of a call; `rest` has its result, and the bytes that it read.
    fn ended(&mut self, call: &Call, rest: &str) {
        let Some(result) = result(rest).filter(|&result| result >= 0) else {
            return;
        };
        let is_read = matches!(&*call.name, "read" | "readv" | "recvfrom" | "recvmsg");
        if is_read && result > 0 && rest.contains(PAYLOAD) {
            // A server may read a request in parts.
            self.request = file(&call.arguments).map(|socket| Request {
                socket,
                read_at: self.at,
                is_synced: false,
            });
        } else if let Some(request) = &mut self.request
            && is_sync(call)
            && call.at > request.read_at
        {
            request.is_synced = true;
        }
    }
}

/// Returns whether a call syncs. `sync_file_range` does not: it leaves the data in the disk's own cache.
fn is_sync(call: &Call) -> bool {
    match &*call.name {
        "fsync" | "fdatasync" | "sync" | "syncfs" => true,
        "msync" => call.arguments.contains("MS_SYNC"),
        "pwritev2" => ["RWF_DSYNC", "RWF_SYNC"]
            .iter()
            .any(|flag| call.arguments.contains(flag)),
        _ => false,
    }
}

/// Returns the number of the file with which a call works, its first argument.
fn file(arguments: &str) -> Option<u32> {
    let end = arguments.find(|c: char| !c.is_ascii_digit());
    arguments[..end.unwrap_or(arguments.len())].parse().ok()
}

/// Returns the number behind the last equals sign between blanks; `None` for a call without a result.
fn result(rest: &str) -> Option<i64> {
    let (_, result) = rest.rsplit_once(" = ")?;
    result.split(' ').next()?.parse().ok()
}

/// Returns the bytes of all strings among the arguments.
fn bytes(arguments: &str) -> Vec<u8> {
    let codes = arguments.split("\\x").skip(1);
    codes
        .filter_map(|code| u8::from_str_radix(code.get(..2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &str =
        "11 read(7, \"\\x50\\x78\\x78\\x78\\x78\\x78\\x78\\x78\\x78\"..., 4096) = 1060\n";
    const ANSWER: &str = "11 write(7, \"\\x41\", 1) = 1\n";
    const SYNC: &str = "12 fdatasync(5)                         = 0\n";

    fn answers(lines: &[&str]) -> Vec<bool> {
        judged(lines).answers
    }

    fn judged(lines: &[&str]) -> Verdict {
        let is_answer = |bytes: &[u8]| bytes.first() == Some(&b'A');
        let mut judge = Judge::new(&is_answer);
        lines.concat().lines().for_each(|line| judge.line(line));
        judge.verdict()
    }

    #[test]
    fn a_sync_must_lie_between_request_and_answer() {
        assert_eq!(answers(&[READ, SYNC, ANSWER]), [true]);
        assert_eq!(answers(&[READ, ANSWER, SYNC]), [false]);
        assert_eq!(answers(&[SYNC, READ, ANSWER]), [false]);
        assert_eq!(
            answers(&[READ, SYNC, ANSWER, READ, ANSWER, READ, SYNC, ANSWER]),
            [true, false, true]
        );
    }

    #[test]
    fn a_sync_must_begin_behind_the_request_and_end_before_the_answer() {
        let begins = "12 fdatasync(5 <unfinished ...>\n";
        let ends = "12 <... fdatasync resumed>)             = 0\n";
        assert_eq!(answers(&[begins, READ, ends, ANSWER]), [false]);
        assert_eq!(answers(&[READ, begins, ANSWER, ends]), [false]);
        assert_eq!(answers(&[READ, begins, ends, ANSWER]), [true]);
        // The write began before the sync had ended, although it ended later.
        let writes = "11 write(7, \"\\x41\", 1 <unfinished ...>\n";
        let wrote = "11 <... write resumed>) = 1\n";
        assert_eq!(answers(&[READ, begins, writes, ends, wrote]), [false]);
    }

    #[test]
    fn a_request_is_read_with_its_last_part() {
        let blocked = "11 recvfrom(7 <unfinished ...>\n";
        let more = "11 <... recvfrom resumed>, \"\\x78\\x78\\x78\\x78\\x78\\x78\\x78\\x78\"..., 512, 0, NULL, NULL) = 512\n";
        assert_eq!(answers(&[READ, SYNC, blocked, more, ANSWER]), [false]);
        assert_eq!(answers(&[blocked, more, SYNC, ANSWER]), [true]);
        let nothing = "11 read(7, 0x7f, 4096) = -1 EAGAIN (Resource temporarily unavailable)\n";
        let ping = "11 read(7, \"\\x50\\x4f\"..., 4096) = 6\n";
        assert_eq!(answers(&[READ, SYNC, nothing, ping, ANSWER]), [true]);
    }

    #[test]
    fn only_answers_to_the_caller_count() {
        let other_socket = "11 write(8, \"\\x41\", 1) = 1\n";
        let other_words = "11 writev(7, [{iov_base=\"\\x50\", iov_len=1}], 1) = 1\n";
        let answer = "11 sendmsg(7, {msg_iov=[{iov_base=\"\\x41\\x42\", iov_len=2}], msg_iovlen=1}, 0) = 2\n";
        let lines = [READ, other_socket, other_words, SYNC, answer];
        assert_eq!(answers(&lines), [true]);
        // No request is open any more.
        assert_eq!(answers(&[READ, SYNC, ANSWER, ANSWER]), [true]);
    }

    #[test]
    fn only_successful_syncs_of_the_disk_count() {
        for (call, expected) in [
            ("fsync(5) = 0", true),
            ("fdatasync(5) = -1 EIO (Input/output error)", false),
            ("fdatasync(5) = ? ERESTARTSYS (To be restarted)", false),
            ("sync_file_range(5, 0, 0, SYNC_FILE_RANGE_WRITE) = 0", false),
            ("msync(0x7f0000, 4096, MS_SYNC) = 0", true),
            ("msync(0x7f0000, 4096, MS_ASYNC) = 0", false),
            (
                "pwritev2(5, [{iov_base=\"\\x41\", iov_len=1}], 1, 0, RWF_DSYNC) = 1",
                true,
            ),
            (
                "pwritev2(5, [{iov_base=\"\\x41\", iov_len=1}], 1, 0, 0) = 1",
                false,
            ),
        ] {
            let line = format!("12 {call}\n");
            assert_eq!(answers(&[READ, &line, ANSWER]), [expected], "{call}");
        }
    }

    #[test]
    fn other_lines_are_ignored() {
        let lines = [
            "11 --- SIGURG {si_signo=SIGURG, si_code=SI_TKILL} ---\n",
            "13 +++ exited with 0 +++\n",
            "12 <... fdatasync resumed>) = 0\n",
            "strace: Process 14 attached\n",
            "\n",
            ANSWER,
        ];
        assert_eq!(judged(&lines), Verdict::default());
        assert!(judged(&["12 io_uring_enter(4, 1, 0, 0, NULL, 8) = 1\n"]).has_ring);
    }
}
