-- wrk: asks for random codes. `codes.txt` stands in the directory that BENCH_DIR names.
local requests = {}

function init(args)
   math.randomseed(os.time())
   local path = args[1]
   for code in io.lines(os.getenv("BENCH_DIR") .. "/codes.txt") do
      requests[#requests + 1] = wrk.format("GET", path .. code)
   end
end

function request()
   return requests[math.random(#requests)]
end

function done(summary)
   local errors = summary.errors
   io.write(string.format("BENCH %d %d %d\n", summary.requests, summary.duration,
      errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
