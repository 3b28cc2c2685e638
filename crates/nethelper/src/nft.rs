//! The program nft(8): executed by its absolute path, without the caller's environment, on text that this crate has
//! written.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use cellbed_netdev::Trying;
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use serde_json::Value;

use crate::error::{Error, Result};

const PLACES: [&str; 3] = ["/usr/sbin/nft", "/usr/bin/nft", "/sbin/nft"];

/// Let programs started by this thread keep `CAP_NET_ADMIN`, which nft(8) needs.
pub fn share_capability() -> Result<()> {
    let what = || {
        "use CAP_NET_ADMIN; if this is the installed helper, reinstall it with \
         `sudo cellbed grant USER --network`"
            .to_string()
    };
    let mut held = capabilities(None).trying(what)?;
    held.inheritable |= CapabilitySet::NET_ADMIN;
    set_capabilities(None, held).trying(what)?;
    configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true).trying(what)?;
    Ok(())
}

/// Execute the commands in `text`, all or none. `attempt` in errors: "adds the rules".
pub fn load(attempt: &'static str, text: &str) -> Result<()> {
    call(attempt, &["-f", "-"], text).map(drop)
}

/// Return the listed objects of one kind: `table` for `list tables`.
pub fn list(command: &[&str], kind: &str) -> Result<Vec<Value>> {
    let attempt = "lists its rules";
    let output = call(attempt, &[&["-j"], command].concat(), "")?;
    let listing: Value = serde_json::from_slice(&output)
        .map_err(|error| Error::Refused(format!("nft {attempt}: {error}")))?;
    let objects = listing["nftables"].as_array().into_iter().flatten();
    Ok(objects
        .filter_map(|object| object.get(kind).cloned())
        .collect())
}

fn call(attempt: &'static str, arguments: &[&str], input: &str) -> Result<Vec<u8>> {
    let failed = |problem: String| Error::Refused(format!("nft {attempt}: {problem}"));
    let program = PLACES
        .into_iter()
        .find(|place| Path::new(place).exists())
        .ok_or_else(|| failed("nft is not installed: sudo apt install nftables".into()))?;
    let mut process = Command::new(program)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = process.stdin.take() {
        // If nft stops reading, it reports the reason.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = process
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().next().unwrap_or_default().trim();
    Err(failed(if first.is_empty() {
        output.status.to_string()
    } else {
        first.chars().take(200).collect()
    }))
}
