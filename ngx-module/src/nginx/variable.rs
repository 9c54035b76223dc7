//! Variables for configuration and logs.

use ngx::ffi::{
    NGX_HTTP_VAR_CHANGEABLE, NGX_HTTP_VAR_NOCACHEABLE, NGX_OK, ngx_http_add_variable,
    ngx_http_get_flushed_variable, ngx_http_get_variable_index, ngx_http_request_t,
    ngx_http_variable_value_t, ngx_int_t, ngx_uint_t,
};

use crate::nginx::conf::Conf;
use crate::nginx::pool::lent;
use crate::nginx::request::Request;

/// The place of a variable in the configuration that nginx has given it for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VariableIndex(usize);

type Get = unsafe extern "C" fn(
    *mut ngx_http_request_t,
    *mut ngx_http_variable_value_t,
    usize,
) -> ngx_int_t;

/// A function that nginx calls for a variable's value; made by [`variable_getter`].
#[derive(Clone, Copy)]
pub(crate) struct VariableGetter(Get);

impl VariableGetter {
    /// # Safety
    /// The function must be sound for every valid request, value and number.
    pub(crate) const unsafe fn new(function: Get) -> Self {
        Self(function)
    }
}

/// The getter that calls a function `fn(&Request, usize) -> Option<&[u8]>` with the number of the variable; the
/// text lives as long as the request.
macro_rules! variable_getter {
    ($function:path) => {{
        unsafe extern "C" fn get(
            request: *mut ngx::ffi::ngx_http_request_t,
            value: *mut ngx::ffi::ngx_http_variable_value_t,
            number: usize,
        ) -> ngx::ffi::ngx_int_t {
            // SAFETY: nginx calls this with a valid request and a value to be filled.
            unsafe { $crate::nginx::variable::get(request, value, number, $function) }
        }
        // SAFETY: the function does with the request what safe code can do.
        unsafe { $crate::nginx::variable::VariableGetter::new(get) }
    }};
}
pub(crate) use variable_getter;

/// Fills a variable's value.
///
/// # Safety
/// Request and value must be valid.
pub(crate) unsafe fn get(
    request: *mut ngx_http_request_t,
    value: *mut ngx_http_variable_value_t,
    number: usize,
    text: for<'r> fn(&'r Request, usize) -> Option<&'r [u8]>,
) -> ngx_int_t {
    // SAFETY: as this function's own. A text that a function finds for any life of the request lives as long as it.
    unsafe {
        let value = &mut *value;
        match text(Request::of(request), number) {
            None => value.set_not_found(1),
            Some(text) => {
                value.set_valid(1);
                value.set_no_cacheable(0);
                value.set_not_found(0);
                // Texts are at most as long as a target or the table of domains.
                value.set_len(text.len() as u32);
                value.data = text.as_ptr().cast_mut();
            }
        }
    }
    NGX_OK as ngx_int_t
}

impl Conf {
    /// Makes a variable known that is not cached, since it changes during a request; `None` when nginx refuses it.
    /// A request may set one that is settable.
    pub(crate) fn add_variable(
        &mut self,
        name: &str,
        is_settable: bool,
        getter: VariableGetter,
        number: usize,
    ) -> Option<()> {
        let settable = if is_settable {
            NGX_HTTP_VAR_CHANGEABLE
        } else {
            0
        };
        let flags = (NGX_HTTP_VAR_NOCACHEABLE | settable) as ngx_uint_t;
        let mut name = lent(name.as_bytes());
        // SAFETY: the configuration is valid; nginx copies the name.
        unsafe {
            let variable = ngx_http_add_variable(self.raw(), &mut name, flags).as_mut()?;
            variable.get_handler = Some(getter.0);
            variable.data = number;
        }
        Some(())
    }

    /// The index of a variable; nginx refuses the configuration when there is none of that name.
    pub(crate) fn variable_index(&self, name: &[u8]) -> Option<VariableIndex> {
        let mut name = lent(name);
        // SAFETY: the configuration is valid; nginx copies the name.
        let index = unsafe { ngx_http_get_variable_index(self.raw(), &mut name) };
        usize::try_from(index).ok().map(VariableIndex)
    }
}

impl Request {
    /// The value of a variable of nginx.
    pub(crate) fn variable(&self, VariableIndex(index): VariableIndex) -> Option<&[u8]> {
        // SAFETY: the request has a place for every variable that has an index.
        unsafe {
            let value = ngx_http_get_flushed_variable(self.raw(), index as ngx_uint_t).as_ref()?;
            (value.not_found() == 0).then(|| value.as_bytes())
        }
    }

    /// Returns whether a variable of nginx has a value other than the empty text and `0`.
    pub(crate) fn is_true(&self, index: VariableIndex) -> bool {
        let value = self.variable(index).unwrap_or_default();
        !value.is_empty() && value != b"0"
    }

    /// The value that `set` or Lua has given a variable of [`Conf::add_variable`] in place of its own. An empty text, or
    /// none as Lua sets it, is taken back: the variable has its own value again.
    #[inline]
    pub(crate) fn variable_set(&self, VariableIndex(index): VariableIndex) -> Option<&[u8]> {
        // SAFETY: the request has a place for every variable that has an index, and no other reference to the value.
        // Its text lives as long as the request.
        unsafe {
            let value = &mut *(*self.raw()).variables.add(index);
            // A value of the variable's own is marked as not cacheable; one that was set is not.
            if (value.valid() == 0 && value.not_found() == 0) || value.no_cacheable() != 0 {
                return None;
            }
            if value.not_found() != 0 || value.len() == 0 {
                value.set_valid(0);
                value.set_not_found(0);
                return None;
            }
            Some(value.as_bytes())
        }
    }
}
