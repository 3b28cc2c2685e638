//! The secret that a server and its clients share, and the file that it lies in.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// 32 random bytes that a server and its clients know, and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Not the secret: it must not get into a log.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be opened, read or written.
    #[error("{}: the secret file cannot be {doing}: {source}", path.display())]
    File {
        /// Of the file.
        path: PathBuf,
        /// Attempted operation: "read" or "written".
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Others may read or change it.
    #[error("{}: the secret file is open to other users (mode {mode:03o}); run `chmod 600`, and create a new secret if others may have read it", path.display())]
    Open {
        /// Of the file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It holds something else.
    #[error("{}: not a secret file, which contains exactly 64 hexadecimal digits; create one with `cellbed-recorder secret FILE`", path.display())]
    Content {
        /// Of the file.
        path: PathBuf,
    },
    /// The system gives no random bytes.
    #[error("cannot get random bytes from the system: {0}")]
    Random(io::Error),
}

/// Random bytes of the system, for secrets, seeds and handshakes.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], SecretError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // By the system call itself: it needs no file, which a program alone in its root directory does not have.
        match rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(SecretError::Random(error.into())),
        }
    }
    Ok(bytes)
}

impl Secret {
    /// The secret that these bytes are.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new one, from the system's random bytes.
    pub fn generate() -> Result<Self, SecretError> {
        random_bytes().map(Self)
    }

    /// The one in a file, unless other users may read or change it or its group may change it.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let failed = |source| SecretError::File {
            path: path.into(),
            doing: "read",
            source,
        };
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o027 != 0 {
            return Err(SecretError::Open {
                path: path.into(),
                mode,
            });
        }
        let text = fs::read(path).map_err(failed)?;
        parse(text.trim_ascii())
            .map(Self)
            .ok_or_else(|| SecretError::Content { path: path.into() })
    }

    /// Writes it to a new file that only its owner can read; an existing file stays as it is, which is an error.
    pub fn write(&self, path: &Path) -> Result<(), SecretError> {
        let failed = |source| SecretError::File {
            path: path.into(),
            doing: "written",
            source,
        };
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let mut text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push('\n');
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(failed)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_written_once_and_read_only_while_it_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let secret = Secret::generate().unwrap();
        secret.write(&path).unwrap();
        assert_eq!(Secret::read(&path).unwrap(), secret);
        assert!(matches!(
            Secret::generate().unwrap().write(&path),
            Err(SecretError::File { .. })
        ));
        assert_eq!(Secret::read(&path).unwrap(), secret);
        for (mode, open) in [(0o604, true), (0o620, true), (0o640, false), (0o400, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                matches!(Secret::read(&path), Err(SecretError::Open { .. })),
                open,
                "{mode:o}"
            );
        }
    }

    #[test]
    fn something_else_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(
            Secret::read(&path)
                .unwrap_err()
                .to_string()
                .contains("cannot be read")
        );
        for content in ["", "ab", &"x".repeat(64), &"a".repeat(65), "\u{e4}"] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(
                matches!(Secret::read(&path), Err(SecretError::Content { .. })),
                "{content}"
            );
        }
        assert!(!format!("{:?}", Secret::new([0x61; 32])).contains("61"));
    }
}
