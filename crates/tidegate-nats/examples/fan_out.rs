//! Shows how a server uses the parser, the list of subscriptions and the writer of messages together,
//! without a socket. The example reads the operations of three clients, and prints the bytes that a server
//! would write to each client.
//!
//! `cargo run -p tidegate-nats --example fan_out`

use std::error::Error;

use tidegate_nats::op::Delivery;
use tidegate_nats::outbox::Outbox;
use tidegate_nats::parse::{Op, ParseLimits, Parser};
use tidegate_nats::sublist::Sublist;

fn main() -> Result<(), Box<dyn Error>> {
    let inputs = [
        "SUB orders.* 1\r\n",
        "SUB > 9\r\n",
        "PUB orders.new 5\r\nhello\r\nPUB weather 4\r\nrain\r\n",
    ];
    let limits = ParseLimits {
        control_line_bytes_max: 4096,
        payload_bytes_max: 1 << 20,
    };
    let mut outboxes = inputs.map(|_| Outbox::default());
    // The key of a subscription is its index in `subscribers`. An entry there holds the subscription's client
    // and the sid, which is the client's name for the subscription.
    let (mut subscriptions, mut subscribers) = (Sublist::new(), Vec::new());
    let mut delivery = Delivery::default();
    for (client, input) in inputs.iter().enumerate() {
        let (mut parser, mut rest) = (Parser::default(), input.as_bytes());
        while let Some((op, bytes)) = parser.next(rest, &limits)? {
            match op {
                Op::Subscribe { subject, sid, .. } => {
                    subscriptions.insert(subject, None, u32::try_from(subscribers.len())?);
                    subscribers.push((client, sid.to_vec()));
                }
                Op::Publish(message) => {
                    delivery.prepare(&message, false);
                    for key in &subscriptions.matches(message.subject).plain {
                        let (client, sid) = &subscribers[*key as usize];
                        delivery.write(&mut outboxes[*client], sid, b"", message.payload);
                    }
                }
                other => println!("client {client} sends {other:?}"),
            }
            rest = &rest[bytes..];
        }
    }
    for (client, outbox) in outboxes.iter().enumerate() {
        let text = String::from_utf8(outbox.to_vec())?;
        println!("client {client} receives {text:?}");
    }
    Ok(())
}
