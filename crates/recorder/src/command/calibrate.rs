//! `calibrate`: the parameters of a network.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cellbed_link::Seed;

use super::arguments::{Calibrate, Reach};
use super::progress::Output;
use super::record::{print, single_access};
use crate::calibration::{Calibration, Calibrator};
use crate::error::{Result, Trying};
use crate::record::Recorder;

/// Calibrates and reports the progress.
pub fn measure(reach: &Reach, seed: u64) -> Result<Calibration> {
    let mut output = Output::new(reach.json, reach.quiet);
    let mut recorder = Recorder::connect(single_access(reach)?)?;
    let calibrator = Calibrator::new(Seed(seed));
    recorder.calibrate(calibrator, &mut |notice| output.notice(&notice))
}

pub fn calibrate(arguments: &Calibrate) -> Result<()> {
    let what = |path: &Path| format!("write {}", path.display());
    if let Some(path) = arguments.output.as_deref().filter(|path| path.is_dir()) {
        // Before minutes of calibration.
        return Ok(Err(io::Error::from(io::ErrorKind::IsADirectory)).trying(|| what(path))?);
    }
    let calibration = measure(&arguments.reach, arguments.seed)?;
    if let Some(path) = &arguments.output {
        let text = serde_json::to_string_pretty(&calibration).unwrap_or_default() + "\n";
        write_whole(path, text.as_bytes()).trying(|| what(path))?;
    }
    print(&calibration, arguments.reach.json);
    Ok(())
}

/// Writes a file completely or not at all; a device or a pipe stays one, and a pipe must have a reader.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if place.exists() && !place.is_file() {
        let waiting_for_no_reader = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        return OpenOptions::new()
            .write(true)
            .custom_flags(waiting_for_no_reader)
            .open(place)?
            .write_all(content);
    }
    let mut partial = place.clone().into_os_string();
    partial.push(".partial");
    let written = File::create(&partial)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&partial, &place));
    written.inspect_err(|_| drop(fs::remove_file(&partial)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_pipe_needs_a_reader() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("/dev/full", at("full")).expect("a link");
        std::os::unix::fs::symlink(at("far"), at("link")).expect("a link");
        fs::create_dir(at("folder")).expect("a folder");
        fs::write(at("far"), "old").expect("a file");
        let pipe = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(pipe.expect("mkfifo").success());
        for (name, code) in [("full", 28), ("pipe", 6), ("folder", 21), ("none/x", 2)] {
            let error = write_whole(&at(name), b"new").expect_err(name);
            assert_eq!(error.raw_os_error(), Some(code), "{name}: {error}");
        }
        write_whole(&at("link"), b"new").expect("written");
        assert_eq!(fs::read(at("far")).expect("read"), b"new");
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|it| it.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["far", "folder", "full", "link", "pipe"]);
    }
}
