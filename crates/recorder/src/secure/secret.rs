//! The secret shared by a server and its clients, and its file.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use hmac::{Hmac, Mac};
use rustix::rand::GetRandomFlags;
use sha2::Sha256;

use crate::error::{Error, Result, Trying};
use crate::wire::CODE_BYTES;

/// 32 random bytes known only to a server and its clients.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Omits the secret, which must not get into a log.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Return random bytes of the system, for secrets, seeds and handshakes.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    // The system call needs no file, which an isolated program lacks. One call returns all of so few bytes.
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())
        .trying(|| "get random bytes from the system".into())?;
    Ok(bytes)
}

impl Secret {
    /// A secret with these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Create a secret from the system's random bytes.
    pub fn generate() -> Result<Self> {
        random_bytes().map(Self)
    }

    /// Read a secret from a file. The file must not be readable or writable by others, or writable by its group.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let failed = |error| failed(path, "read", error);
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o027 != 0 {
            return Error::failed(format!(
                "{name}: the secret file is open to other users (mode {mode:03o}); run `chmod 600`, and create a new \
                 secret if others may have read it"
            ));
        }
        let text = fs::read(path).map_err(failed)?;
        let Some(secret) = parse(text.trim_ascii()) else {
            return Error::failed(format!(
                "{name}: not a secret file, which contains exactly 64 hexadecimal digits; create one with \
                 `cellbed-recorder secret FILE`"
            ));
        };
        Ok(Self(secret))
    }

    /// Write the secret to a new file that only its owner can read. Errors: the file exists.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let text = hexadecimal(&self.0) + "\n";
        file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(|error| failed(path, "written", error))
    }

    /// Derive bytes that only the secret determines, different for each purpose and number.
    pub(crate) fn derive(&self, purpose: &[u8], number: u64) -> [u8; 32] {
        let context = b"cellbed-recorder ";
        CodeKey::new(&self.0).code(&[context, purpose, &number.to_be_bytes()])
    }
}

fn failed(path: &Path, doing: &str, error: io::Error) -> Error {
    let name = path.display();
    Error::Failed(format!(
        "{name}: the secret file cannot be {doing}: {error}"
    ))
}

/// Return bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(digits: &[u8]) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(bytes)
}

/// A key for codes, by HMAC-SHA-256 (RFC 2104).
#[derive(Clone)]
pub(super) struct CodeKey(Hmac<Sha256>);

impl CodeKey {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(Mac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// Return the code of the concatenated parts. The context must determine the parts' lengths.
    pub(super) fn code(&self, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Compares in constant time with the code, or with at least its first half.
    pub(super) fn verifies(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        code.len() >= CODE_BYTES / 2 && self.mac(parts).verify_truncated_left(code).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_written_once_and_read_only_while_it_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let problem = || Secret::read(&path).unwrap_err().to_string();
        assert!(problem().contains("cannot be read"));
        let secret = Secret::generate().unwrap();
        secret.write(&path).unwrap();
        assert_eq!(Secret::read(&path).unwrap(), secret);
        let again = Secret::generate().unwrap().write(&path).unwrap_err();
        assert!(again.to_string().contains("cannot be written"), "{again}");
        assert_eq!(Secret::read(&path).unwrap(), secret);
        for (mode, open) in [(0o604, true), (0o620, true), (0o640, false), (0o400, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = Secret::read(&path).map_err(|error| error.to_string());
            let refused = read.is_err_and(|error| error.contains("open to other users"));
            assert_eq!(refused, open, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for content in ["", "ab", &"x".repeat(64), &"a".repeat(65), "\u{e4}"] {
            fs::write(&path, content).unwrap();
            assert!(problem().contains("not a secret file"), "{content}");
        }
        assert!(!format!("{:?}", Secret::new([0x61; 32])).contains("61"));
    }
}
