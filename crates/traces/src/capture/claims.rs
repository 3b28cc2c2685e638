//! Claimed lengths of incomplete packets, in a truncated or a damaged capture.

/// The longest packet that any tool captures, bytes (`MAXIMUM_SNAPLEN` of libpcap).
pub(super) const LARGEST_PACKET: u32 = 1 << 18;
/// More than all options of a packet in pcapng together, bytes.
const LARGEST_OPTIONS: u32 = 1 << 16;
/// The beginning and end of every pcapng block: its type, and its length twice.
const BLOCK_BYTES: u32 = 12;
/// The enhanced packet block of pcapng: its type, and its bytes beside data and options.
const ENHANCED_PACKET: u32 = 6;
const ENHANCED_BYTES: u32 = 32;

/// Layout of a capture's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// pcapng.
    pub newer: bool,
    pub big_endian: bool,
}

impl Layout {
    /// Return whether the data begins with a block of pcapng shorter than the minimum, where the arithmetic of
    /// `pcap_parser` fails.
    pub(super) fn too_short(self, data: &[u8]) -> bool {
        self.newer
            && self
                .number(data, 4)
                .is_some_and(|length| length < BLOCK_BYTES)
    }

    /// Why a block with this beginning cannot be a packet, even an incomplete one.
    pub(super) fn impossible(self, data: &[u8]) -> Option<&'static str> {
        let (captured, whole) = if self.newer {
            if self.number(data, 0)? != ENHANCED_PACKET {
                return None;
            }
            let block = self.number(data, 4)?;
            let captured = self.number(data, 20)?;
            let room = block.checked_sub(ENHANCED_BYTES);
            let fits = room.and_then(|room| room.checked_sub(captured));
            if captured <= LARGEST_PACKET && fits.is_none_or(|rest| rest > LARGEST_OPTIONS) {
                return Some("has a length that does not fit its packet's");
            }
            (captured, self.number(data, 24)?)
        } else {
            (self.number(data, 8)?, self.number(data, 12)?)
        };
        if captured > LARGEST_PACKET {
            Some("claims to be larger than any packet")
        } else if captured > whole {
            Some("claims to hold more than its packet had")
        } else {
            None
        }
    }

    fn number(self, data: &[u8], at: usize) -> Option<u32> {
        let bytes = *data.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }
}
