//! `calibrate`: the parameters of a network.

use std::path::Path;
use std::{fs, io};

use cellbed_link::Seed;

use super::arguments::{Calibrate, Reach};
use super::progress::Output;
use super::record::{print, single_access};
use crate::calibration::{Calibration, Calibrator};
use crate::error::{Result, Trying};
use crate::record::Recorder;

/// Calibrates and reports the progress.
pub fn calibrated(reach: &Reach, seed: u64) -> Result<Calibration> {
    let mut output = Output::new(reach.json, reach.quiet);
    let mut recorder = Recorder::connect(single_access(reach)?)?;
    let calibrator = Calibrator::new(Seed(seed));
    recorder.calibrate(calibrator, &mut |notice| output.notice(&notice))
}

pub fn calibrate(arguments: &Calibrate) -> Result<()> {
    let what = |path: &Path| format!("write {}", path.display());
    if let Some(path) = arguments.output.as_deref().filter(|path| path.is_dir()) {
        // Before minutes of calibration.
        return Err(io::Error::from(io::ErrorKind::IsADirectory)).trying(|| what(path));
    }
    let calibration = calibrated(&arguments.reach, arguments.seed)?;
    if let Some(path) = &arguments.output {
        let text = serde_json::to_string_pretty(&calibration).unwrap_or_default() + "\n";
        fs::write(path, text).trying(|| what(path))?;
    }
    print(&calibration, arguments.reach.json);
    Ok(())
}
