//! Capacity of a channel of quality CQI in a transmission time interval (TTI).

/// Physical resource blocks of a 20 MHz carrier (3GPP TS 36.101, table 5.6-1).
pub const RESOURCE_BLOCKS: u32 = 100;

/// Maximum bits that a device of category 3 receives per TTI (3GPP TS 36.306, table 4.1-1).
const CATEGORY_3: u32 = 102_048;

/// Transport block size index for CQI 1 to 15: the highest one whose efficiency does not exceed the CQI's (3GPP TS
/// 36.213, tables 7.1.7.1-1 and 7.2.3-1).
const BLOCK_INDEX: [u8; 15] = [0, 1, 2, 4, 6, 8, 9, 11, 13, 15, 17, 19, 21, 23, 26];

/// Bits of a transport block of 100 resource blocks, for I_TBS 0 to 26 (3GPP TS 36.213, table 7.1.7.2.1-1).
const BLOCK_BITS: [u32; 27] = [
    2_792, 3_624, 4_584, 5_736, 7_224, 8_760, 10_296, 12_216, 14_112, 15_840, 17_568, 19_848,
    22_920, 25_456, 28_336, 30_576, 32_856, 36_696, 39_232, 43_816, 46_888, 51_024, 55_056, 57_336,
    61_664, 63_776, 75_376,
];

/// A channel quality indicator: 0 (out of range) to 15 (3GPP TS 36.213, table 7.2.3-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(try_from = "u8")]
pub struct Cqi(u8);

impl Cqi {
    /// The lowest quality at which data can be sent.
    pub const LOWEST: Self = Self(1);
    /// The highest quality.
    pub const HIGHEST: Self = Self(15);

    /// Return the indicator, or `None` above 15.
    pub fn new(value: u8) -> Option<Self> {
        (value <= 15).then_some(Self(value))
    }

    /// Return the nearest quality at which data can be sent.
    pub fn nearest(value: f64) -> Self {
        Self((value.round() as u8).clamp(Self::LOWEST.0, Self::HIGHEST.0))
    }

    /// Return the value, 0 to 15.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Return the bits that a user receives in a TTI with all resource blocks: a transport block on each of two
    /// spatial layers, limited by the device's category; 0 out of range.
    pub fn bits_per_tti(self) -> u32 {
        let Some(place) = self.0.checked_sub(1) else {
            return 0;
        };
        let index = BLOCK_INDEX[usize::from(place)];
        CATEGORY_3.min(2 * BLOCK_BITS[usize::from(index)])
    }

    /// Return the whole bytes of `blocks` resource blocks, in proportion to their number (the table has one column of
    /// the standard's 110).
    pub fn bytes(self, blocks: u32) -> u32 {
        self.bits_per_tti() * blocks / (8 * RESOURCE_BLOCKS)
    }

    /// Return the resource blocks needed for `bytes`; `None` out of range.
    pub fn blocks(self, bytes: u64) -> Option<u64> {
        let whole = self.whole_blocks(bytes)?;
        let bits = whole * u64::from(self.bits_per_tti());
        Some(whole + u64::from(bits < bytes * 8 * u64::from(RESOURCE_BLOCKS)))
    }

    /// Return the resource blocks that `bytes` fill completely; `None` out of range.
    pub fn whole_blocks(self, bytes: u64) -> Option<u64> {
        (bytes * 8 * u64::from(RESOURCE_BLOCKS)).checked_div(self.bits_per_tti().into())
    }
}

impl TryFrom<u8> for Cqi {
    type Error = String;

    fn try_from(value: u8) -> Result<Self, Self::Error> {
        Self::new(value).ok_or_else(|| format!("a CQI of {value} is outside 0 to 15"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_the_tables_up_to_the_category() {
        let bits: Vec<u32> = (0..=15).map(|it| Cqi(it).bits_per_tti()).collect();
        assert_eq!(bits[..4], [0, 2 * 2_792, 2 * 3_624, 2 * 4_584]);
        assert_eq!(bits[13..], [2 * 51_024, 102_048, 102_048]); // 2 · 57,336 and 2 · 75,376 exceed the category
        assert!(bits.is_sorted());
    }

    #[test]
    fn resource_blocks_carry_whole_bytes_and_suffice() {
        assert_eq!(Cqi(15).bytes(100), 12_756);
        assert_eq!((Cqi(1).bytes(100), Cqi(1).bytes(1)), (698, 6));
        assert_eq!(Cqi(1).blocks(1500), Some(215)); // 12,000 bits at 55.84 a block
        assert_eq!(Cqi(0).blocks(1), None);
        for cqi in 1..=15 {
            for bytes in [1, 40, 699, 1500] {
                let blocks = Cqi(cqi).blocks(bytes).unwrap() as u32;
                assert!(u64::from(Cqi(cqi).bytes(blocks)) >= bytes);
                assert!(u64::from(Cqi(cqi).bytes(blocks - 1)) < bytes);
            }
        }
    }

    #[test]
    fn what_is_no_indicator_is_refused() {
        assert_eq!(Cqi::new(16), None);
        assert_eq!(
            [-3.0, 0.4, 7.5, 99.0].map(|it| Cqi::nearest(it).0),
            [1, 1, 8, 15]
        );
    }
}
