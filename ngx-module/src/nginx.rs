//! nginx, in safe types.
//!
//! Nearly all `unsafe` code of the project is below this file. Its types rely on this model of nginx:
//!
//! - A worker is one thread: nginx calls the functions of a module one after the other, each with
//!   pointers that are valid for the call. Threads of nginx' pools read files and call no module. So
//!   nothing here is `Send` or `Sync`, but [`process::Local`], which only that thread reaches.
//! - A [`request::Request`], its pool and all texts in it live until the function returns that nginx
//!   has called with it. For a request that waits for longer, the module holds a
//!   [`request::Token`], and gives it up when nginx terminates or frees the request ([`request::State`]).
//! - nginx changes no text of a request in place while a function of the module runs.
//! - A configuration and all that is made for it live as long as the worker that serves it, longer than its
//!   requests. Nothing in it changes after it was read. Handles of its parts, such as [`conf::Server`], stay in the
//!   settings that are part of it.
//! - A call that ends a request or hands it on may call back into the module: log phase, named
//!   location, the next request of the same connection. Calls that can do so say it.
//! - An unwinding panic does not leave a function that nginx has called: the process ends.

pub(crate) mod address;
pub(crate) mod conf;
pub(crate) mod connection;
pub(crate) mod event;
pub(crate) mod filter;
pub(crate) mod identity;
pub(crate) mod log;
pub(crate) mod module;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod request;
pub(crate) mod resolver;
pub(crate) mod response;
pub(crate) mod selftest;
pub(crate) mod shared;
pub(crate) mod ssl;
pub(crate) mod status;
pub(crate) mod url;
pub(crate) mod variable;
