//! Records of the packets that a recorder sent.

pub use cellbed_link::Way;

/// One packet of a train or of a saturation, and what became of it. Times are ns since the recording's time zero on the
/// client's clock; stamps of the server are converted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// Number of the train; 0 for saturation.
    pub train: u32,
    /// Position in the train, or in the saturation.
    pub index: u32,
    /// IP length, bytes.
    pub bytes: u16,
    /// When it was sent; not known of a lost packet of the server.
    pub sent_ns: Option<i64>,
    /// When its first copy arrived; `None` if it was lost.
    pub arrived_ns: Option<i64>,
    /// Number of copies that arrived.
    pub copies: u8,
}
