//! Messages on a TCP connection, each after its length in two bytes.

use super::Malformed;

/// Maximum bytes of a frame, without its length.
pub const FRAME_BYTES: usize = 2048;

/// Append a frame with the bytes that `write` appends.
pub fn put_frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 2]);
    write(out);
    let length = (out.len() - start - 2) as u16; // at most `FRAME_BYTES`
    out[start..start + 2].copy_from_slice(&length.to_be_bytes());
}

/// Divides the bytes of a connection into frames.
#[derive(Debug, Default)]
pub struct FrameReader(Vec<u8>);

impl FrameReader {
    /// Add received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Take the next frame, if complete. Errors: a frame that is empty or too long; the connection is useless.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let Some((length, rest)) = self.0.split_first_chunk::<2>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if !(1..=FRAME_BYTES).contains(&length) {
            return Err(Malformed);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.0.drain(..2 + length);
        Ok(Some(frame))
    }
}
