//! The control socket: commands from other processes of the same user, JSON lines in and out.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{Result, Trying};

/// Maximum bytes of a command: room for a delay of 100 000 steps.
const LONGEST: u64 = 4 << 20;

/// A listening socket. Dropping the value removes the file.
pub struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket. The first of the cloned values to be dropped removes the file.
#[derive(Clone)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may already have been removed.
        let _ = fs::remove_file(&self.0);
    }
}

impl ControlSocket {
    /// Listens at `path`. Replaces the file of a killed emulator.
    pub fn bind(path: &Path) -> Result<Self> {
        let what = || format!("listen for commands at {}", path.display());
        make_room(path).trying_or(what, |error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                "Another emulator listens there; choose another path".into()
            }
            io::ErrorKind::AlreadyExists => {
                "The existing file is not a socket; choose another path, or remove it".into()
            }
            _ => String::new(),
        })?;
        let address = SocketAddrUnix::new(path).trying_or(what, |_| {
            "The path of a socket has at most 107 bytes; choose a shorter one".into()
        })?;
        let listen = || {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            // The file inherits these rights: others can never connect.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, 64)?;
            Ok::<_, rustix::io::Errno>(UnixListener::from(socket))
        };
        Ok(Self {
            listener: listen().trying(what)?,
            file: SocketFile(path.to_owned()),
        })
    }

    /// Answer clients, each in a separate thread, while the process lives. `answer` returns the answer to a line, or
    /// `None` at the end. The returned value removes the socket's file.
    pub fn serve(
        self,
        answer: impl Fn(String) -> Option<String> + Clone + Send + 'static,
    ) -> Result<SocketFile> {
        let listener = self.listener;
        let serve = move || {
            for client in listener.incoming() {
                // The client has already gone, or no descriptor is left: try the next client.
                let client = match client {
                    Ok(client) => client,
                    Err(error) => {
                        tracing::debug!("a client of the control socket is not accepted: {error}");
                        thread::sleep(std::time::Duration::from_millis(10));
                        continue;
                    }
                };
                let answer = answer.clone();
                let thread = thread::Builder::new().name("client".into());
                if let Err(error) = thread.spawn(move || converse(&client, answer)) {
                    tracing::warn!("a client of the control socket has no answer: {error}");
                }
            }
        };
        thread::Builder::new()
            .name("control".into())
            .spawn(serve)
            .trying(|| "start the thread of the control socket".into())?;
        Ok(self.file)
    }
}

/// Remove a socket without a listener.
fn make_room(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => fs::remove_file(path),
        },
    }
}

/// Answer one client until it closes the connection.
fn converse(mut client: &UnixStream, answer: impl Fn(String) -> Option<String>) {
    let mut input = BufReader::new(client);
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let whole = line.ends_with(b"\n") || (line.len() as u64) < LONGEST;
        let Some(answer) = answer(String::from_utf8_lossy(&line).into_owned()) else {
            return;
        };
        // The rest of a too long line is no command.
        if client.write_all(answer.as_bytes()).is_err() || !whole {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn only_a_dead_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let first = ControlSocket::bind(&path).unwrap();
        let refused = |path: &Path| ControlSocket::bind(path).err().unwrap().to_string();
        assert!(refused(&path).contains("Another emulator"));
        std::mem::forget(first.file);
        drop(first.listener); // killed
        ControlSocket::bind(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(refused(&path).contains("not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert!(refused(&folder.path().join("x".repeat(200))).contains("107 bytes"));
        assert!(refused(Path::new("/no/such/folder/x")).contains("/no/such/folder/x"));
    }
}
