//! `calibrate`: the parameters of a network.

use std::fs;

use cellbed_link::Seed;

use super::arguments::{Calibrate, Reach};
use super::progress::Output;
use super::record::{print, single_access};
use crate::calibration::{Calibration, Calibrator};
use crate::error::{Result, Trying};
use crate::record::Recorder;

/// Calibrates and tells meanwhile how far it is.
pub fn calibrated(reach: &Reach, seed: u64) -> Result<Calibration> {
    let mut output = Output::new(reach.json, reach.quiet);
    let mut recorder = Recorder::connect(single_access(reach)?)?;
    let calibrator = Calibrator::new(Seed(seed));
    recorder.calibrate(calibrator, &mut |notice| output.notice(&notice))
}

pub fn calibrate(arguments: &Calibrate) -> Result<()> {
    let calibration = calibrated(&arguments.reach, arguments.seed)?;
    if let Some(path) = &arguments.output {
        let text = serde_json::to_string_pretty(&calibration).unwrap_or_default() + "\n";
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, path))
            .trying(|| format!("write {}", path.display()))?;
    }
    print(&calibration, arguments.reach.json);
    Ok(())
}
