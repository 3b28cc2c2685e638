//! NewReno (RFC 5681, RFC 6582): what [`Controller`] provides.

use super::super::Tcp;
use super::{Controller, Window};

#[derive(Clone, Debug)]
pub(crate) struct NewReno {
    window: Window,
}

impl NewReno {
    pub fn new(tcp: &Tcp) -> Self {
        Self {
            window: Window::new(tcp),
        }
    }
}

impl Controller for NewReno {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }
}
