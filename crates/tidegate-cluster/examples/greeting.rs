//! Shows the greeting of two nodes in memory: each node proves to the other that it knows the cluster's
//! secret. The first node then refuses a third node with another secret.
//!
//! `cargo run -p tidegate-cluster --example greeting`

use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::Kind;
use tidegate_cluster::channel::{Channel, ChannelError, Effect};
use tidegate_cluster::proof::Secret;
use tidegate_cluster::roster::{Me, Roster};

fn node(id: u64, secret: &str) -> Roster {
    let me = Me {
        cluster: "tide".to_owned(),
        name: format!("n{id}"),
        id,
        life: 1,
        streams: true,
        shards: 1,
        client_url: format!(":{}", 4221 + id),
        tags: Vec::new(),
        secret: Secret::new(secret),
    };
    Roster::new(me, 2, None)
}

/// Gives the received `bytes` to the channel of the node `roster`, and returns the name of the peer once the
/// greeting is over.
fn hear(
    channel: &mut Channel,
    roster: &Roster,
    bytes: &[u8],
) -> Result<Option<String>, ChannelError> {
    let (mut used, mut peer) = (0, None);
    loop {
        let (effect, bytes) = channel.next(Time::ZERO, &bytes[used..], roster)?;
        used += bytes;
        match effect {
            Effect::Need(_) => return Ok(peer),
            Effect::Open(theirs) => peer = Some(theirs.name),
            Effect::Done | Effect::Frame(_) => {}
        }
    }
}

fn greet(dialer: &Roster, listener: &Roster) -> Result<(), ChannelError> {
    let limit = Duration::from_secs(10);
    // A server draws the nonces from the system's random source; fixed ones serve here.
    let mut near = Channel::dial(Time::ZERO, Kind::Route, [1; 32], limit, None, dialer);
    let mut far = Channel::answer(Time::ZERO, [2; 32], limit, None);
    let (mut sent, mut answered) = (0, 0);
    for _ in 0..2 {
        let bytes = near.out.to_vec();
        if let Some(peer) = hear(&mut far, listener, &bytes[sent..])? {
            println!("{} knows {peer}", listener.me().name);
        }
        sent = bytes.len();
        let bytes = far.out.to_vec();
        if let Some(peer) = hear(&mut near, dialer, &bytes[answered..])? {
            println!("{} knows {peer}", dialer.me().name);
        }
        answered = bytes.len();
    }
    Ok(())
}

fn main() -> Result<(), ChannelError> {
    greet(&node(1, "tides"), &node(2, "tides"))?;
    let refused = greet(&node(3, "ebbs"), &node(2, "tides"));
    println!("n3: {}", refused.expect_err("the secrets differ"));
    Ok(())
}
