//! The error of all descriptions.

/// A description that is no run. The text has the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DescriptionError(String);

impl DescriptionError {
    /// Returns the error with the name of the part of the description in front.
    pub(crate) fn within(self, part: &str) -> Self {
        Self(format!("{part}: {self}"))
    }
}

/// Returns an error with this text.
pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, DescriptionError> {
    Err(DescriptionError(text.into()))
}
