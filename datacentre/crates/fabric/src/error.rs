//! The error of all descriptions.

/// An invalid description. The text states the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DescriptionError(String);

impl DescriptionError {
    /// Return the error prefixed with a part of the description.
    pub(crate) fn within(self, part: &str) -> Self {
        Self(format!("{part}: {self}"))
    }
}

/// Return an error with this text.
pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, DescriptionError> {
    Err(DescriptionError(text.into()))
}
