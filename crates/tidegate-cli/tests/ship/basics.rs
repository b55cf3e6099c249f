//! What arrives when nothing goes wrong.

use super::program::Program;

#[test]
fn records_go_to_standard_output() {
    let (receiver, address) = Program::receive(&[]);
    let mut sender = Program::send(address, &[]);
    sender.feed(b"one\n\ntwo\r\nthree");
    let (_, stderr) = sender.succeed();
    assert!(
        stderr.contains("sent and acknowledged 4 records, 13 B"),
        "{stderr}"
    );
    receiver.interrupt();
    let (code, stdout, stderr) = receiver.wait();
    assert_eq!((code, &*stdout), (130, &b"one\n\ntwo\r\nthree"[..]));
    assert!(stderr.contains("received 4 records"), "{stderr}");
}
