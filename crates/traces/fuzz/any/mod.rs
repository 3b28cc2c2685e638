//! Properties of every importer for arbitrary bytes.

use std::io::Cursor;

use cellbed_traces::{Imported, Nowhere, Request, Result, import};

/// Reads bytes as a request says.
pub fn read(bytes: &[u8], request: &str) -> Option<Imported> {
    let request: Request = serde_json::from_str(request).expect("a request");
    promised(import(Cursor::new(bytes), &request, &Nowhere))
}

/// Series of some length, or an error of one line.
pub fn promised(done: Result<Imported>) -> Option<Imported> {
    match done {
        Ok(done) => {
            assert!(!done.parts.is_empty());
            assert!(
                done.parts
                    .iter()
                    .all(|part| part.rows > 0 && part.duration_ns > 0)
            );
            assert!(
                done.notes
                    .iter()
                    .all(|note| !note.contains(char::is_control))
            );
            Some(done)
        }
        Err(error) => {
            let told = error.in_file("x".as_ref());
            assert!(
                told.starts_with('x') && !told.contains(char::is_control),
                "{told:?}"
            );
            None
        }
    }
}
