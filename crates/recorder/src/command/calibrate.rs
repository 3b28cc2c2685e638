//! `calibrate`: the parameters of a network.

use std::fs;

use cellbed_link::Seed;

use super::arguments::Calibrate;
use super::progress::Output;
use super::record::{print, single_access};
use crate::calibration::Calibrator;
use crate::error::{Result, Trying};
use crate::record::Recorder;

pub fn calibrate(arguments: &Calibrate) -> Result<()> {
    let mut output = Output::new(arguments.reach.json, arguments.reach.quiet);
    let mut recorder = Recorder::connect(single_access(&arguments.reach)?)?;
    let calibrator = Calibrator::new(Seed(arguments.seed));
    let calibration = recorder.calibrate(calibrator, &mut |notice| output.notice(&notice))?;
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
