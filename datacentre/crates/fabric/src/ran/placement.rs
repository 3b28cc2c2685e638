//! Users placed in a cell: distance, path loss and shadowing give the signal-to-noise ratio (SNR), and this the CQI.

use super::carrier::Carrier;
use super::channel::draw_normal;
use super::cqi::Cqi;
use crate::random::Stream;
use crate::units::Picos;

/// Least distance of a user, m, and heights of antennas and users, m (3GPP TR 38.901, table 7.2-1, UMa).
const LEAST_M: f64 = 35.0;
const ANTENNA_M: f64 = 25.0;
const USER_M: f64 = 1.5;

/// Bit error rate for which the users report (Piro, Baldo & Miozzo, "An LTE module for the ns-3 network simulator",
/// WNS3 2011, §3.3).
const BIT_ERRORS: f64 = 5e-5;

settings! {
    /// A cell with placed users.
    #[derive(Copy)]
    Placement {
        /// Radius of the cell, m.
        radius_m: f64 = 500.0,
        /// Carrier frequency, GHz.
        frequency_ghz: f64 = 2.0,
        /// Radiated power with the gains of antennas, dBm.
        power_dbm: f64 = 46.0,
        /// Noise figure of a device and the rise of noise by interference, dB.
        noise_db: f64 = 9.0,
        /// Standard deviation around the user's quality, in steps of the CQI.
        deviation: f64 = 0.0,
        /// Time until the correlation of this deviation falls to 1/e.
        memory_ps: Picos = Picos::from_millis(100),
    }
}

impl Placement {
    /// Draw the distance of a user in m, uniformly in the area of the cell, and its channel quality.
    pub(super) fn draw(&self, carrier: &Carrier, random: &mut Stream) -> (f64, Cqi) {
        let [least, radius] = [LEAST_M, self.radius_m.max(LEAST_M)].map(|it| it * it);
        let distance = libm::sqrt(least + random.unit() * (radius - least));
        let sight = random.unit() < sight_probability(distance);
        // Deviations of shadowing: TR 38.901, table 7.4.1-1.
        let shadowing = draw_normal(random) * if sight { 4.0 } else { 6.0 };
        let loss = path_loss(distance, self.frequency_ghz, sight) + shadowing;
        let noise = -174.0 + 10.0 * libm::log10(carrier.hertz()) + self.noise_db;
        (distance, quality(self.power_dbm - loss - noise, carrier))
    }
}

/// Return the probability of a line of sight (TR 38.901, table 7.4.2-1, UMa).
fn sight_probability(distance: f64) -> f64 {
    let near = (18.0 / distance).min(1.0);
    near + libm::exp(-distance / 63.0) * (1.0 - near)
}

/// Return the path loss of an urban macro cell in dB (TR 38.901, table 7.4.1-1, UMa).
fn path_loss(distance: f64, frequency_ghz: f64, sight: bool) -> f64 {
    let height = ANTENNA_M - USER_M;
    let span = libm::sqrt(distance * distance + height * height);
    let [far, frequency] = [span, frequency_ghz].map(libm::log10);
    // Heights above the environment, which is 1 m high; the speed of light as in note 1 of the table.
    let bend = 4.0 * (ANTENNA_M - 1.0) * (USER_M - 1.0) * frequency_ghz * 1e9 / 3e8;
    let in_sight = if distance <= bend {
        28.0 + 22.0 * far + 20.0 * frequency
    } else {
        let bent = libm::log10(bend * bend + height * height);
        28.0 + 40.0 * far + 20.0 * frequency - 9.0 * bent
    };
    if sight {
        return in_sight;
    }
    in_sight.max(13.54 + 39.08 * far + 20.0 * frequency - 0.6 * (USER_M - 1.5))
}

/// Return the highest quality whose efficiency the SNR in dB reaches, log2(1 + SNR / (−ln(5 BER) / 1.5)), but at least
/// the lowest at which data can be sent.
fn quality(snr_db: f64, carrier: &Carrier) -> Cqi {
    let gap = -libm::log(5.0 * BIT_ERRORS) / 1.5;
    let efficiency = libm::log2(1.0 + libm::pow(10.0, snr_db / 10.0) / gap);
    let reached = carrier.efficiencies.iter().filter(|it| **it <= efficiency);
    Cqi::nearest(reached.count() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    #[test]
    fn qualities_are_those_of_ns_3() {
        // Index of the modulation and coding scheme at -2 to 30 dB in ns-3's test of link adaptation; scheme 2 n - 2
        // has the efficiency of CQI n.
        let schemes = [
            0, 0, 2, 2, 2, 4, 4, 6, 6, 8, 8, 10, 12, 12, 14, 14, 16, 18, 18, 20, 20, 22, 22, 24,
            24, 26, 26, 28, 28, 28, 28, 28, 28,
        ];
        for (snr, scheme) in (-2..).zip(schemes) {
            let cqi = quality(f64::from(snr), &Carrier::default());
            assert_eq!(2 * cqi.get() - 2, scheme, "{snr} dB");
        }
        assert_eq!(quality(-30.0, &Carrier::default()), Cqi::LOWEST);
    }

    #[test]
    fn path_loss_has_its_slopes_and_is_continuous() {
        // 22, 40 and 39.08 dB a decade, and 20 dB a decade of frequency.
        let slope = |from, sight| path_loss(10.0 * from, 2.0, sight) - path_loss(from, 2.0, sight);
        assert!((slope(2_000.0, true) - 40.0).abs() < 0.02);
        assert!((slope(2_000.0, false) - 39.08).abs() < 0.02);
        let near = path_loss(300.0, 2.0, true) - path_loss(150.0, 2.0, true);
        assert!((near - 22.0 * 2f64.log10()).abs() < 0.1, "{near}");
        let step = path_loss(320.1, 2.0, true) - path_loss(319.9, 2.0, true);
        assert!(step.abs() < 0.02, "{step}");
        let octave = path_loss(200.0, 4.0, false) - path_loss(200.0, 2.0, false);
        assert!((octave - 20.0 * 2f64.log10()).abs() < 1e-9);
        for distance in [35.0, 100.0, 1_000.0] {
            assert!(path_loss(distance, 2.0, false) >= path_loss(distance, 2.0, true));
        }
    }

    #[test]
    fn users_are_uniform_in_the_disc_and_the_near_ones_have_the_better_channels() {
        let placement = Placement {
            radius_m: 1000.0,
            ..Placement::default()
        };
        let users: Vec<(f64, Cqi)> = (0..20_000)
            .map(|user| {
                let mut random = stream(1, Purpose::Channel, user);
                placement.draw(&Carrier::default(), &mut random)
            })
            .collect();
        for (within, share) in [(250.0, 1.0 / 16.0), (500.0, 0.25), (1000.0, 1.0)] {
            let found = users.iter().filter(|it| it.0 <= within).count() as f64 / 20_000.0;
            assert!((found - share).abs() < 0.01, "{within}: {found}");
        }
        let mean = |from: f64, to: f64| {
            let some: Vec<f64> = users
                .iter()
                .filter(|it| (from..to).contains(&it.0))
                .map(|it| f64::from(it.1.get()))
                .collect();
            some.iter().sum::<f64>() / some.len() as f64
        };
        let means = [mean(35.0, 200.0), mean(400.0, 600.0), mean(900.0, 1000.0)];
        assert!(means.is_sorted_by(|a, b| a > b), "{means:?}");
        assert!(means[0] > 14.0 && means[2] < 8.0, "{means:?}");
    }
}
