//! A configuration while it is read.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::ptr::{self, NonNull};

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
pub(crate) use ngx::ffi::{
    NGX_CONF_1MORE, NGX_CONF_BLOCK, NGX_CONF_NOARGS, NGX_CONF_TAKE1, NGX_CONF_TAKE12,
    NGX_HTTP_LIF_CONF, NGX_HTTP_LOC_CONF, NGX_HTTP_MAIN_CONF, NGX_HTTP_SRV_CONF,
    ngx_command_t as Directive,
};
use ngx::ffi::{
    NGX_LOG_EMERG, NGX_LOG_WARN, NGX_OK, ngx_add_path, ngx_array_push, ngx_command_t,
    ngx_conf_full_name, ngx_conf_include, ngx_conf_parse, ngx_conf_t, ngx_http_conf_ctx_t,
    ngx_http_core_loc_conf_t, ngx_http_core_main_conf_t, ngx_http_core_module,
    ngx_http_core_srv_conf_t, ngx_http_handler_pt,
    ngx_http_phases_NGX_HTTP_LOG_PHASE as NGX_HTTP_LOG_PHASE,
    ngx_http_phases_NGX_HTTP_POST_READ_PHASE as NGX_HTTP_POST_READ_PHASE,
    ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE as NGX_HTTP_PRECONTENT_PHASE,
    ngx_http_upstream_conf_t, ngx_int_t, ngx_parse_size, ngx_path_t, ngx_str_t, ngx_uint_t,
};
use ngx::ngx_conf_log_error;

use crate::nginx::identity::{self, Settings};
use crate::nginx::pool::{Pool, lent};
use crate::nginx::request::RequestHandler;

/// A configuration, at the directive that is read.
#[repr(transparent)]
pub(crate) struct Conf(UnsafeCell<ngx_conf_t>);

/// The reason to refuse a directive: nginx adds the file and the line. `None` when nginx has logged the reason.
#[derive(Debug)]
pub(crate) struct Refused(Option<String>);

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self(Some(reason))
    }
}

/// A phase that a module takes part in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// After a request was read.
    PostRead,
    /// Before the answer, when a request was let in.
    PreContent,
    /// After the answer.
    Log,
}

/// A server of the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server(NonNull<ngx_http_core_srv_conf_t>);

/// A table of directives: name, contexts and arguments, and the function `fn(&mut Conf) -> Result<(), _>` that reads
/// one.
macro_rules! directives {
    ($($name:literal: $kind:expr => $read:path;)*) => {
        [
            $(ngx::ffi::ngx_command_t {
                name: ngx::ngx_string!($name),
                type_: ($kind) as ngx::ffi::ngx_uint_t,
                set: Some({
                    unsafe extern "C" fn set(
                        cf: *mut ngx::ffi::ngx_conf_t,
                        _command: *mut ngx::ffi::ngx_command_t,
                        _conf: *mut std::ffi::c_void,
                    ) -> *mut std::ffi::c_char {
                        // SAFETY: nginx calls this with a valid configuration.
                        unsafe { $crate::nginx::conf::Conf::set(cf, $read) }
                    }
                    set
                }),
                // The functions find their configuration themselves.
                conf: ngx::ffi::NGX_HTTP_MAIN_CONF_OFFSET,
                offset: 0,
                post: std::ptr::null_mut(),
            },)*
            ngx::ffi::ngx_command_t::empty(),
        ]
    };
}
pub(crate) use directives;

impl Conf {
    /// # Safety
    /// The configuration must be valid as long as `'c`, and there may be no other reference of this kind to it.
    pub(super) unsafe fn of<'c>(raw: *mut ngx_conf_t) -> &'c mut Self {
        // SAFETY: as this function's own; the type is that of the configuration.
        unsafe { &mut *raw.cast::<Self>() }
    }

    /// Calls a function of the module, logs why it refuses, and returns `ok` or `error`.
    ///
    /// # Safety
    /// As nginx calls a module with a configuration: it must be valid.
    pub(super) unsafe fn call<E: Into<Refused>, R>(
        raw: *mut ngx_conf_t,
        read: impl FnOnce(&mut Self) -> Result<(), E>,
        ok: R,
        error: R,
    ) -> R {
        // SAFETY: as this function's own; nothing else refers to it during the call.
        let conf = unsafe { Self::of(raw) };
        match read(conf).map_err(E::into) {
            Ok(()) => ok,
            Err(Refused(reason)) => {
                if let Some(reason) = reason {
                    conf.log(NGX_LOG_EMERG, &reason);
                }
                error
            }
        }
    }

    /// Reads a directive.
    ///
    /// # Safety
    /// As nginx calls the function of a directive: the configuration must be valid.
    pub(crate) unsafe fn set<E: Into<Refused>>(
        raw: *mut ngx_conf_t,
        read: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> *mut c_char {
        // SAFETY: as this function's own.
        unsafe { Self::call(raw, read, NGX_CONF_OK, NGX_CONF_ERROR) }
    }

    pub(super) fn raw(&self) -> *mut ngx_conf_t {
        self.0.get()
    }

    pub(super) fn pool(&self) -> Pool<'_> {
        // SAFETY: a configuration has a pool.
        unsafe { Pool::of((*self.raw()).pool) }
    }

    fn log(&self, level: u32, text: &str) {
        ngx_conf_log_error!(level, self.raw(), "{text}");
    }

    /// Logs a warning, with the file and the line.
    pub(crate) fn warn(&self, text: &str) {
        self.log(NGX_LOG_WARN, text);
    }

    /// The words of the directive, its name first.
    pub(crate) fn words(&self) -> Vec<&[u8]> {
        // SAFETY: nginx calls a directive's function with an array of texts, which live as long as the
        // configuration.
        let words = unsafe { (*(*self.raw()).args).as_slice::<ngx_str_t>() };
        words.iter().map(ngx_str_t::as_bytes).collect()
    }

    /// Returns whether the directive stands in the `http` block itself, not in a server or location.
    pub(crate) fn is_http_block(&self) -> bool {
        // SAFETY: the configuration is valid.
        unsafe { (*self.raw()).cmd_type == NGX_HTTP_MAIN_CONF as ngx_uint_t }
    }

    /// The file and the line of the directive.
    pub(crate) fn place(&self) -> (String, usize) {
        // SAFETY: a configuration that is read has a file.
        unsafe {
            let file = (*self.raw()).conf_file;
            ((*file).file.name.to_string(), (*file).line)
        }
    }

    /// Reads a block, each of whose lines is handed to `line` with `block`.
    ///
    /// # Errors
    /// When nginx has refused a line, or the end of the file.
    pub(crate) fn read_block<B>(
        &mut self,
        block: &mut B,
        line: fn(&mut Self, &mut B) -> Result<(), String>,
    ) -> Result<(), Refused> {
        let mut lines = Lines { block, line };
        // SAFETY: this is how nginx' own modules read a block: the parser calls the handler instead of looking for
        // directives, with what is given here, which lives until it returns; what was changed is put back.
        let result = unsafe {
            let raw = self.raw();
            let saved = *raw;
            (*raw).handler = Some(read_line::<B>);
            (*raw).handler_conf = (&raw mut lines).cast();
            let result = ngx_conf_parse(raw, ptr::null_mut());
            *raw = saved;
            result
        };
        if result == NGX_CONF_OK {
            Ok(())
        } else {
            Err(Refused(None))
        }
    }

    /// The path of a file that the configuration names, which may be relative to its directory.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn config_path(&self, value: &[u8]) -> Result<String, String> {
        self.full_name(value, 1).map(|path| path.to_string())
    }

    /// A whole path; a relative one is below nginx' prefix, or with 1 beside its configuration.
    fn full_name(&self, value: &[u8], conf_prefix: usize) -> Result<ngx_str_t, String> {
        let mut path = lent(value);
        // SAFETY: the configuration is valid; nginx replaces the text by a longer one in its pool where one is
        // needed.
        let result = unsafe { ngx_conf_full_name((*self.raw()).cycle, &mut path, conf_prefix) };
        if result != NGX_OK as ngx_int_t {
            let shown = String::from_utf8_lossy(value);
            return Err(format!("the path \"{shown}\" can't be used"));
        }
        Ok(path)
    }

    /// Has nginx make a directory that its workers can write to, as it does for its own; a relative path is below
    /// its prefix.
    ///
    /// # Errors
    /// When there is no memory, or nginx uses the directory otherwise.
    pub(crate) fn add_directory(&mut self, name: &[u8]) -> Result<PathBuf, String> {
        let full = self.full_name(name, 0)?;
        let full = self.pool().copy_with_zero(full.as_bytes());
        // SAFETY: all zeros is how nginx' own modules begin a path.
        let path = unsafe { self.pool().zeroed::<ngx_path_t>() };
        let (Some(full), Some(path)) = (full, path) else {
            return Err("there is no memory".to_owned());
        };
        let mut path = path.as_ptr();
        // SAFETY: nginx keeps the structure, which lives in the configuration's pool as its texts do.
        let result = unsafe {
            let file = (*self.raw()).conf_file;
            (*path).name = full;
            (*path).conf_file = (*file).file.name.data;
            (*path).line = (*file).line;
            ngx_add_path(self.raw(), &mut path)
        };
        if result != NGX_OK as ngx_int_t {
            let shown = String::from_utf8_lossy(name);
            return Err(format!("the directory \"{shown}\" can't be used"));
        }
        Ok(PathBuf::from(OsStr::from_bytes(full.as_bytes())))
    }
}

/// A block that is read, and the function for its lines.
struct Lines<'b, B> {
    block: &'b mut B,
    line: fn(&mut Conf, &mut B) -> Result<(), String>,
}

unsafe extern "C" fn read_line<B>(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    lines: *mut c_void,
) -> *mut c_char {
    // SAFETY: the parser calls this with a valid configuration.
    let is_include = unsafe { Conf::of(cf) }.words().first() == Some(&&b"include"[..]);
    // SAFETY: `read_block` hands these to the parser, which calls this while it waits: nothing else refers to
    // them or to the configuration.
    unsafe {
        if is_include {
            return include(cf, lines);
        }
        let lines = &mut *lines.cast::<Lines<'_, B>>();
        Conf::set(cf, |conf| (lines.line)(conf, lines.block))
    }
}

/// Reads the files of `include`, whose lines nginx hands to the function of the block.
///
/// # Safety
/// As nginx calls the function of a line.
unsafe fn include(cf: *mut ngx_conf_t, lines: *mut c_void) -> *mut c_char {
    // SAFETY: as this function's own. nginx' function reads the second word, and passes on the rest.
    unsafe {
        match Conf::of(cf).words().len() {
            2 => ngx_conf_include(cf, ptr::null_mut(), lines),
            _ => Conf::set(cf, |_| Err("\"include\" takes one file".to_owned())),
        }
    }
}

/// The size that a text such as `64k` or `32m` says.
pub(crate) fn parse_size(text: &[u8]) -> Option<usize> {
    let mut text = lent(text);
    // SAFETY: nginx only reads the text.
    usize::try_from(unsafe { ngx_parse_size(&mut text) }).ok()
}

/// The configurations at the directive. They are those of HTTP: the module has directives in the `http` block only.
impl Conf {
    fn context(&self) -> &ngx_http_conf_ctx_t {
        // SAFETY: within the `http` block it is the context of the block, the server or the location.
        unsafe { &*(*self.raw()).ctx.cast() }
    }

    fn core_main(&self) -> *mut ngx_http_core_main_conf_t {
        // SAFETY: nginx' own module has made its configurations first.
        unsafe { *self.context().main_conf.add(ngx_http_core_module.ctx_index) }.cast()
    }

    pub(super) fn core_location(&self) -> *mut ngx_http_core_loc_conf_t {
        // SAFETY: as above.
        unsafe { *self.context().loc_conf.add(ngx_http_core_module.ctx_index) }.cast()
    }

    /// The module's configuration of the `http` block.
    pub(crate) fn main<S: Settings>(&self) -> Option<&S::Main> {
        // SAFETY: nginx has had the module make it, with this type.
        unsafe {
            (*self.context().main_conf.add(identity::number()))
                .cast::<S::Main>()
                .as_ref()
        }
    }

    /// The same, to be changed.
    pub(crate) fn main_mut<S: Settings>(&mut self) -> Option<&mut S::Main> {
        // SAFETY: as above; the other reference to it would borrow this.
        unsafe {
            (*self.context().main_conf.add(identity::number()))
                .cast::<S::Main>()
                .as_mut()
        }
    }

    /// The module's configuration of the location, or what locations of the server or block inherit.
    pub(crate) fn location<S: Settings>(&self) -> Option<&S::Location> {
        // SAFETY: as for `main`.
        unsafe {
            (*self.context().loc_conf.add(identity::number()))
                .cast::<S::Location>()
                .as_ref()
        }
    }

    /// The same, to be changed.
    pub(crate) fn location_mut<S: Settings>(&mut self) -> Option<&mut S::Location> {
        // SAFETY: as for `main_mut`.
        unsafe {
            (*self.context().loc_conf.add(identity::number()))
                .cast::<S::Location>()
                .as_mut()
        }
    }

    /// The module's configuration that a request of a server has until its location is found.
    pub(crate) fn server_location_mut<S: Settings>(
        &mut self,
        server: Server,
    ) -> Option<&mut S::Location> {
        // SAFETY: servers live as long as the configuration, and have configurations for all modules; the other
        // reference to this one would borrow this.
        unsafe {
            let context = server.0.as_ref().ctx.as_ref()?;
            (*context.loc_conf.add(identity::number()))
                .cast::<S::Location>()
                .as_mut()
        }
    }

    /// Sets the handler of the location.
    pub(crate) fn set_handler(&mut self, handler: RequestHandler) {
        // SAFETY: the location's configuration is valid.
        unsafe { (*self.core_location()).handler = Some(handler.0) };
    }

    /// Returns whether the location has a handler.
    pub(crate) fn has_handler(&self) -> bool {
        // SAFETY: the location's configuration is valid.
        unsafe { (*self.core_location()).handler.is_some() }
    }

    /// Returns whether the location has this handler.
    pub(crate) fn has_this_handler(&self, handler: RequestHandler) -> bool {
        // SAFETY: the location's configuration is valid.
        let set = unsafe { (*self.core_location()).handler };
        set.is_some_and(|set| ptr::fn_addr_eq(set, handler.0))
    }

    /// Returns whether the location is a `limit_except` block.
    pub(crate) fn is_limit_except(&self) -> bool {
        // SAFETY: the location's configuration is valid.
        unsafe { (*self.core_location()).lmt_excpt() != 0 }
    }

    /// Returns whether the location has no name, as that of an `if`.
    pub(crate) fn has_no_name(&self) -> bool {
        // SAFETY: the location's configuration is valid.
        unsafe { (*self.core_location()).noname() != 0 }
    }

    /// The server.
    pub(crate) fn server(&self) -> Option<Server> {
        // SAFETY: nginx' own module has made its configuration.
        let server = unsafe { *self.context().srv_conf.add(ngx_http_core_module.ctx_index) };
        NonNull::new(server.cast()).map(Server)
    }

    /// Returns whether a server of this configuration has a named location.
    pub(crate) fn has_named_location(&self, server: Server, name: &[u8]) -> bool {
        // SAFETY: servers live as long as the configuration; their named locations are a list that ends with null,
        // or null when there are none.
        unsafe {
            let mut place = server.0.as_ref().named_locations;
            while let Some(location) = place.as_ref().and_then(|place| place.as_ref()) {
                if location.name.as_bytes() == name {
                    return true;
                }
                place = place.add(1);
            }
        }
        false
    }

    /// Has nginx call a handler in a phase of every request; `false` when there is no memory.
    pub(crate) fn add_handler(&mut self, phase: Phase, handler: RequestHandler) -> bool {
        let phase = match phase {
            Phase::PostRead => NGX_HTTP_POST_READ_PHASE,
            Phase::PreContent => NGX_HTTP_PRECONTENT_PHASE,
            Phase::Log => NGX_HTTP_LOG_PHASE,
        };
        // SAFETY: nginx' own module has made the arrays of handlers before it asks other modules to add theirs.
        unsafe {
            let handlers = &raw mut (*self.core_main()).phases[phase as usize].handlers;
            let place = ngx_array_push(handlers).cast::<ngx_http_handler_pt>();
            if !place.is_null() {
                place.write(Some(handler.0));
            }
            !place.is_null()
        }
    }

    /// Has `proxy_pass` of the location send on what clients send while it is answered; `None` if nginx has no such
    /// module, and `Some(false)` if it does so already.
    pub(crate) fn preserve_output(&mut self) -> Option<bool> {
        // SAFETY: the list of modules ends with null. The configuration of the proxy begins with what it says to
        // nginx' upstreams, and nothing else has it while the configuration is read.
        unsafe {
            let mut module = (*(*self.raw()).cycle).modules;
            while !(*module).is_null()
                && CStr::from_ptr((**module).name) != c"ngx_http_proxy_module"
            {
                module = module.add(1);
            }
            let module = (*module).as_ref()?;
            let place = self.context().loc_conf.add(module.ctx_index);
            let upstream = (*place).cast::<ngx_http_upstream_conf_t>();
            let was_set = (*upstream).preserve_output() == 1;
            (*upstream).set_preserve_output(1);
            Some(!was_set)
        }
    }
}
