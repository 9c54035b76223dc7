-- The Lua sides: what a short link costs with lua-nginx-module. A GET over a cosocket from the
-- worker's pool of keep-alive connections, then the record's target; kept, if at all, for ten
-- minutes in the worker (lru) or in memory that workers share (dict), whatever happens in Redis.
local function get(key)
   local socket = ngx.socket.tcp()
   socket:settimeout(1000)
   local ok, problem = socket:connect("127.0.0.1", tonumber(ngx.var.bench_redis_port))
   if not ok then
      return nil, problem
   end
   local sent
   sent, problem = socket:send("*2\r\n$3\r\nGET\r\n$" .. #key .. "\r\n" .. key .. "\r\n")
   if not sent then
      return nil, problem
   end
   local line
   line, problem = socket:receive()
   if not line then
      return nil, problem
   end
   local length = tonumber(string.sub(line, 2))
   local value
   if length and length >= 0 then
      value, problem = socket:receive(length)
      if not value then
         return nil, problem
      end
      socket:receive(2)
   end
   socket:setkeepalive(60000, 64)
   return value
end

local function read(code)
   local record, problem = get("sl:l:" .. code)
   if problem then
      return nil, problem
   end
   return record and string.match(record, "^1 302 %d+ %d+ (.+)$")
end

local code = string.match(ngx.var.uri, "([0-9A-Za-z]+)$")
local keep = ngx.var.bench_keep
local target, problem
if keep == "lru" then
   local kept = package.loaded.bench_kept
   if not kept then
      kept = require("resty.lrucache").new(200000)
      package.loaded.bench_kept = kept
   end
   target = kept:get(code)
   if not target then
      target, problem = read(code)
      if target then
         kept:set(code, target, 600)
      end
   end
elseif keep == "dict" then
   local kept = ngx.shared.links
   target = kept:get(code)
   if not target then
      target, problem = read(code)
      if target then
         kept:set(code, target, 600)
      end
   end
else
   target, problem = read(code)
end
if problem then
   return ngx.exit(503)
end
if not target then
   return ngx.exit(404)
end
ngx.status = 302
ngx.header["Location"] = target
ngx.header["Cache-Control"] = "no-store"
ngx.header["Content-Length"] = 0
ngx.exit(302)
