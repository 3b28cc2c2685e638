//! Means with their uncertainty.

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub mean: f64,
    /// 0 where a single sample gives none.
    pub error: f64,
    pub samples: usize,
}

impl Estimate {
    /// Of independent samples; `None` without any.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let error = if samples.len() > 1 {
            (squares / (count - 1.0) / count).sqrt()
        } else {
            0.0
        };
        (!samples.is_empty()).then_some(Self {
            mean,
            error,
            samples: samples.len(),
        })
    }

    /// The mean without the tenth at either end, so that a retransmission now and then does not move
    /// it, with the standard error that belongs to it (Tukey and McLaughlin, 1963: from the winsorised deviations).
    pub fn trimmed_mean(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let cut = sorted.len() / 10;
        let kept = &sorted[cut..sorted.len() - cut];
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        let (low, high) = (*kept.first()?, *kept.last()?);
        let winsorised: Vec<f64> = sorted
            .iter()
            .map(|sample| sample.clamp(low, high))
            .collect();
        let Self { error, .. } = Self::of(&winsorised)?;
        let share = kept.len() as f64 / sorted.len() as f64;
        Some(Self {
            mean,
            error: error / share,
            samples: samples.len(),
        })
    }
}

/// The value below which a share of the samples lies, linear in between; `None` without any.
pub(super) fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (
        sorted.get(place.floor() as usize)?,
        sorted.get(place.ceil() as usize)?,
    );
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_knows_its_error() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(estimate.mean, 2.5);
        assert!((estimate.error - (5.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[7.0]).unwrap().error, 0.0);
    }

    #[test]
    fn an_outlier_does_not_move_a_trimmed_mean() {
        let mut samples: Vec<f64> = (0..20).map(|at| 10.0 + f64::from(at % 2)).collect();
        samples[3] = 500.0;
        let estimate = Estimate::trimmed_mean(&samples).unwrap();
        assert!((estimate.mean - 10.5).abs() < 0.1, "{}", estimate.mean);
        assert!(estimate.error < 0.2, "{}", estimate.error);
    }

    #[test]
    fn quantiles_lie_between_samples() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[0.0, 10.0], 0.95), Some(9.5));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
