//! Carriers: resource blocks, transmission time interval (TTI), and bits of a TTI for each channel quality.

use serde::Deserialize;

use super::cqi::Cqi;
use crate::error::{DescriptionError, refuse};
use crate::units::Picos;

/// A carrier of a description.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Table {
    /// LTE with two spatial layers, and devices of category 3.
    Lte {
        /// Channel bandwidth, MHz.
        #[serde(default = "lte_bandwidth")]
        bandwidth_mhz: f64,
    },
    /// 5G NR.
    Nr {
        /// Channel bandwidth, MHz.
        #[serde(default = "nr_bandwidth")]
        bandwidth_mhz: u32,
        /// Subcarrier spacing, kHz.
        #[serde(default = "spacing")]
        spacing_khz: u32,
        /// Spatial layers.
        #[serde(default = "layers")]
        layers: u32,
        /// Highest modulation.
        #[serde(default)]
        modulation: Modulation,
    },
}

fn lte_bandwidth() -> f64 {
    20.0
}

fn nr_bandwidth() -> u32 {
    100
}

fn spacing() -> u32 {
    30
}

fn layers() -> u32 {
    2
}

/// The highest modulation of NR, which selects a table of channel qualities.
#[derive(Clone, Copy, Default, Deserialize)]
enum Modulation {
    #[serde(rename = "64QAM")]
    Qam64,
    #[default]
    #[serde(rename = "256QAM")]
    Qam256,
}

impl Default for Carrier {
    fn default() -> Self {
        Self::lte(100)
    }
}

/// Bandwidth in MHz and resource blocks of LTE (3GPP TS 36.101, table 5.6-1).
const LTE_BLOCKS: [(f64, u32); 6] = [
    (1.4, 6),
    (3.0, 15),
    (5.0, 25),
    (10.0, 50),
    (15.0, 75),
    (20.0, 100),
];

/// Bandwidths of NR, MHz.
const NR_BANDWIDTHS: [u32; 15] = [5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100, 200, 400];

/// Subcarrier spacing in kHz, and resource blocks for each bandwidth, 0 for none (3GPP TS 38.101-1, table 5.3.2-1).
/// The spacing of 120 kHz and the bandwidth of 200 MHz belong to millimetre waves (TS 38.101-2, table 5.3.2-1).
const NR_BLOCKS: [(u32, [u32; 15]); 4] = [
    (
        15,
        [25, 52, 79, 106, 133, 160, 216, 270, 0, 0, 0, 0, 0, 0, 0],
    ),
    (
        30,
        [
            11, 24, 38, 51, 65, 78, 106, 133, 162, 189, 217, 245, 273, 0, 0,
        ],
    ),
    (
        60,
        [0, 11, 18, 24, 31, 38, 51, 65, 79, 93, 107, 121, 135, 264, 0],
    ),
    (120, [0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 66, 132, 264]),
];

/// Overhead of the downlink below 7.1 GHz, and in millimetre waves (3GPP TS 38.306, §4.1.2).
const OVERHEAD: [f64; 2] = [0.14, 0.18];

/// Bits per symbol and code rate × 1024 of CQI 1 to 15, up to 64QAM (3GPP TS 36.213, table 7.2.3-1; TS 38.214, table
/// 5.2.2.1-2).
const UP_TO_64QAM: [[u32; 15]; 2] = [
    [2, 2, 2, 2, 2, 2, 4, 4, 4, 6, 6, 6, 6, 6, 6],
    [
        78, 120, 193, 308, 449, 602, 378, 490, 616, 466, 567, 666, 772, 873, 948,
    ],
];

/// The same up to 256QAM (3GPP TS 38.214, table 5.2.2.1-3).
const UP_TO_256QAM: [[u32; 15]; 2] = [
    [2, 2, 2, 4, 4, 4, 6, 6, 6, 6, 6, 8, 8, 8, 8],
    [
        78, 193, 449, 378, 490, 616, 466, 567, 666, 772, 873, 711, 797, 885, 948,
    ],
];

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

/// A carrier.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Carrier {
    /// Transmission time interval: a subframe of LTE, a slot of NR.
    pub tti: Picos,
    /// Number of resource blocks.
    pub blocks: u32,
    /// Bits that a user receives in a TTI with all resource blocks, by CQI.
    bits: [u32; 16],
    /// Bits per symbol of CQI 1 to 15, with coding.
    pub(super) efficiencies: [f64; 15],
}

impl TryFrom<Table> for Carrier {
    type Error = DescriptionError;

    /// Return the carrier, or refuse a bandwidth without an entry in the standard.
    fn try_from(table: Table) -> Result<Self, Self::Error> {
        match table {
            Table::Lte { bandwidth_mhz } => {
                match LTE_BLOCKS.iter().find(|it| it.0 == bandwidth_mhz) {
                    Some(&(_, blocks)) => Ok(Self::lte(blocks)),
                    None => refuse(format!(
                        "LTE has no bandwidth of {bandwidth_mhz} MHz: write 1.4, 3, 5, 10, 15 or 20 MHz"
                    )),
                }
            }
            Table::Nr {
                bandwidth_mhz,
                spacing_khz,
                layers,
                modulation,
            } => {
                let column = NR_BANDWIDTHS.iter().position(|&it| it == bandwidth_mhz);
                let row = NR_BLOCKS.iter().find(|it| it.0 == spacing_khz);
                let blocks = row.zip(column).map_or(0, |((_, row), column)| row[column]);
                if blocks == 0 {
                    return refuse(format!(
                        "NR has no bandwidth of {bandwidth_mhz} MHz with a spacing of {spacing_khz} kHz: write another pair"
                    ));
                }
                let overhead = OVERHEAD[usize::from(spacing_khz == 120 || bandwidth_mhz > 100)];
                let efficiencies = efficiencies(match modulation {
                    Modulation::Qam256 => UP_TO_256QAM,
                    Modulation::Qam64 => UP_TO_64QAM,
                });
                // Subcarriers × symbols of a slot, without overhead: the formula of TS 38.306, §4.1.2.
                let elements = f64::from(blocks * 12 * 14 * layers) * (1.0 - overhead);
                let bits = efficiencies.map(|it| (it * elements) as u32);
                let tti = Picos(Picos::from_millis(15).0 / u64::from(spacing_khz));
                Ok(Self::new(tti, blocks, bits, efficiencies))
            }
        }
    }
}

/// Return the bits per symbol of CQI 1 to 15, with coding.
fn efficiencies([bits, rates]: [[u32; 15]; 2]) -> [f64; 15] {
    std::array::from_fn(|it| f64::from(bits[it] * rates[it]) / 1024.0)
}

impl Carrier {
    fn lte(blocks: u32) -> Self {
        let bits = BLOCK_INDEX.map(|it| {
            let both = 2 * BLOCK_BITS[usize::from(it)] * blocks / 100;
            CATEGORY_3.min(both)
        });
        Self::new(
            Picos::from_millis(1),
            blocks,
            bits,
            efficiencies(UP_TO_64QAM),
        )
    }

    fn new(tti: Picos, blocks: u32, by_cqi: [u32; 15], efficiencies: [f64; 15]) -> Self {
        let mut bits = [0; 16];
        bits[1..].copy_from_slice(&by_cqi);
        Self {
            tti,
            blocks,
            bits,
            efficiencies,
        }
    }

    /// Return the bits that a user receives in a TTI with all resource blocks: on LTE a transport block on each of two
    /// spatial layers, limited by the device's category; 0 out of range.
    pub fn bits(&self, cqi: Cqi) -> u32 {
        self.bits[usize::from(cqi.get())]
    }

    /// Return the bandwidth of all resource blocks in Hz.
    pub(super) fn hertz(&self) -> f64 {
        f64::from(self.blocks * 12) * 15.0 / self.tti.as_secs_f64()
    }

    /// Return the whole bytes of `blocks` resource blocks, in proportion to their number.
    pub fn bytes(&self, cqi: Cqi, blocks: u32) -> u32 {
        (u64::from(self.bits(cqi)) * u64::from(blocks) / (8 * u64::from(self.blocks))) as u32
    }

    /// Return the resource blocks needed for `bytes`; `None` out of range.
    pub fn blocks_for(&self, cqi: Cqi, bytes: u64) -> Option<u64> {
        let whole = self.whole_blocks(cqi, bytes)?;
        let bits = whole * u64::from(self.bits(cqi));
        Some(whole + u64::from(bits < bytes * 8 * u64::from(self.blocks)))
    }

    /// Return the resource blocks that `bytes` fill completely; `None` out of range.
    pub fn whole_blocks(&self, cqi: Cqi, bytes: u64) -> Option<u64> {
        (bytes * 8 * u64::from(self.blocks)).checked_div(self.bits(cqi).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lte(bandwidth_mhz: f64) -> Carrier {
        Table::Lte { bandwidth_mhz }.try_into().unwrap()
    }

    fn nr(bandwidth_mhz: u32, spacing_khz: u32, layers: u32, modulation_bits: u32) -> Carrier {
        let modulation = match modulation_bits {
            8 => Modulation::Qam256,
            _ => Modulation::Qam64,
        };
        let table = Table::Nr {
            bandwidth_mhz,
            spacing_khz,
            layers,
            modulation,
        };
        table.try_into().unwrap()
    }

    fn cqi(value: u8) -> Cqi {
        Cqi::new(value).unwrap()
    }

    #[test]
    fn rates_follow_the_tables_up_to_the_category() {
        let bits: Vec<u32> = (0..=15).map(|it| lte(20.0).bits(cqi(it))).collect();
        assert_eq!(bits[..4], [0, 2 * 2_792, 2 * 3_624, 2 * 4_584]);
        assert_eq!(bits[13..], [2 * 51_024, 102_048, 102_048]); // 2 · 57,336 and 2 · 75,376 exceed the category
        assert!(bits.is_sorted());
    }

    #[test]
    fn narrower_bands_are_within_three_per_cent_of_their_own_tables() {
        // I_TBS 26 in the columns of the other bandwidths of TS 36.213, table 7.1.7.2.1-1.
        for (bandwidth, bits) in [(1.4, 4_392), (3.0, 11_064), (5.0, 18_336), (10.0, 36_696)] {
            let ratio = f64::from(lte(bandwidth).bits(Cqi::HIGHEST)) / f64::from(2 * bits);
            assert!((0.97..1.03).contains(&ratio), "{bandwidth}: {ratio}");
        }
        assert_eq!(lte(15.0).bits(Cqi::HIGHEST), CATEGORY_3);
    }

    #[test]
    fn the_peak_rate_of_nr_is_that_of_the_formula() {
        // Layers × bits per symbol × 948/1024 × blocks × 12 × symbols a second × (1 − overhead): TS 38.306, §4.1.2.
        // The published peak rate of 100 MHz at 30 kHz with four layers is 2.34 Gbit/s.
        for (bandwidth, spacing, layers, modulation, overhead, gigabits) in [
            (100, 30, 4, 8, 0.14, 2.337),
            (50, 15, 2, 6, 0.14, 0.433),
            (20, 60, 1, 8, 0.14, 0.103),
            (400, 120, 2, 6, 0.18, 3.233),
        ] {
            let carrier = nr(bandwidth, spacing, layers, modulation);
            let symbols = 14.0 * f64::from(spacing) / 15.0 * 1000.0;
            let per_element = f64::from(layers * modulation) * 948.0 / 1024.0;
            let formula = per_element * f64::from(carrier.blocks * 12) * symbols * (1.0 - overhead);
            let rate = f64::from(carrier.bits(Cqi::HIGHEST)) / carrier.tti.as_secs_f64();
            assert!((rate / formula - 1.0).abs() < 1e-4, "{rate} {formula}");
            assert!((rate / 1e9 - gigabits).abs() < 1e-3, "{rate}");
        }
        assert_eq!(nr(400, 120, 1, 6).tti, Picos::from_micros(125));
    }

    #[test]
    fn the_tables_of_nr_leave_guard_bands_and_never_lose_efficiency() {
        for (spacing, row) in NR_BLOCKS {
            for (bandwidth, blocks) in NR_BANDWIDTHS.iter().zip(row).filter(|it| it.1 > 0) {
                let used = f64::from(blocks * 12 * spacing) / f64::from(bandwidth * 1000);
                assert!(
                    (0.78..=0.99).contains(&used),
                    "{spacing} {bandwidth} {used}"
                );
            }
        }
        for modulation in [6, 8] {
            let bits = (0..=15).map(|it| nr(100, 30, 2, modulation).bits(cqi(it)));
            assert!(bits.is_sorted());
        }
    }

    #[test]
    fn resource_blocks_carry_whole_bytes_and_suffice() {
        let carrier = Carrier::default();
        assert_eq!(carrier.bytes(cqi(15), 100), 12_756);
        assert_eq!(
            (carrier.bytes(cqi(1), 100), carrier.bytes(cqi(1), 1)),
            (698, 6)
        );
        assert_eq!(carrier.blocks_for(cqi(1), 1500), Some(215)); // 12,000 bits at 55.84 a block
        assert_eq!(carrier.blocks_for(cqi(0), 1), None);
        for carrier in [carrier, lte(1.4), nr(100, 30, 4, 8), nr(5, 30, 1, 6)] {
            for quality in 1..=15 {
                for bytes in [1, 40, 699, 1500] {
                    let blocks = carrier.blocks_for(cqi(quality), bytes).unwrap() as u32;
                    assert!(u64::from(carrier.bytes(cqi(quality), blocks)) >= bytes);
                    assert!(u64::from(carrier.bytes(cqi(quality), blocks - 1)) < bytes);
                }
            }
        }
    }

    #[test]
    fn carriers_without_an_entry_in_the_standard_are_refused() {
        let parse = |text: &str| serde_json::from_str::<Carrier>(text);
        assert_eq!(parse(r#"{"kind": "lte"}"#).unwrap(), Carrier::default());
        assert_eq!(parse(r#"{"kind": "nr"}"#).unwrap(), nr(100, 30, 2, 8));
        for wrong in [
            r#"{"kind": "lte", "bandwidth_mhz": 7}"#,
            r#"{"kind": "nr", "bandwidth_mhz": 100, "spacing_khz": 15}"#,
            r#"{"kind": "nr", "bandwidth_mhz": 400, "spacing_khz": 60}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
