//! The deliveries and acknowledgements of a consumer that comes from a backup, as plain numbers.

/// The deliveries and acknowledgements of a consumer. A pair has the number of a delivery, then the number of
/// a message in the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last delivery.
    pub delivered: (u64, u64),
    /// The position up to which all deliveries are acknowledged.
    pub ack_floor: (u64, u64),
    /// The messages that are delivered and not acknowledged, in order.
    pub unacked: Vec<Unacked>,
}

/// A message that a consumer has delivered and that no receiver has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unacked {
    /// The number of the message in the stream.
    pub seq: u64,
    /// The number of the delivery.
    pub delivery: u64,
    /// The time of the delivery, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The count of the deliveries of this message.
    pub count: u64,
}
