//! The deliveries and acknowledgements of a consumer that comes from a backup, as plain numbers, because a
//! backup has no types of this crate.

/// The deliveries and acknowledgements of a consumer in a backup, from which the restored consumer continues.
/// A pair has the number of a delivery, then the number of a message in the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The numbers of the last delivery, after which the restored consumer continues.
    pub delivered: (u64, u64),
    /// The position up to which receivers have acknowledged all deliveries.
    pub ack_floor: (u64, u64),
    /// The messages that receivers have not acknowledged, in the order of the stream. The restored consumer
    /// redelivers them.
    pub unacked: Vec<Unacked>,
}

/// A message that a consumer has delivered and that no receiver has acknowledged, according to the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unacked {
    /// The number of the message in the stream, which the restored stream keeps.
    pub seq: u64,
    /// The number of the delivery, among all deliveries of the consumer.
    pub delivery: u64,
    /// The time of the delivery, in nanoseconds since 1970. The message is due again some time after it.
    pub time_ns: i64,
    /// The number of times that the consumer has delivered this message, for the delivery limit.
    pub count: u64,
}
