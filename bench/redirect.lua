-- wrk: asks for codes. `codes.txt` stands in the directory that BENCH_DIR names; the arguments
-- are the path before the code and how codes are chosen: uniform, zipf or sequential, with `+close`
-- for a connection each, with `+phone` as a phone's browser asks.
local requests = {}
local order = {}
local place = 0

function init(args)
   math.randomseed(os.time())
   local path, mode = args[1], args[2]
   local headers = { Host = "bench" }
   if string.find(mode, "+close", 1, true) then
      headers["Connection"] = "close"
   end
   if string.find(mode, "+phone", 1, true) then
      headers["User-Agent"] = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 " ..
         "(KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36"
      headers["Accept"] = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
      headers["Accept-Language"] = "zh-CN,zh;q=0.9,en;q=0.8"
      headers["Accept-Encoding"] = "gzip, deflate"
      headers["Upgrade-Insecure-Requests"] = "1"
   end
   for code in io.lines(os.getenv("BENCH_DIR") .. "/codes.txt") do
      requests[#requests + 1] = wrk.format("GET", path .. code, headers)
   end
   -- Chosen in advance, so that choosing costs every mode the same.
   local count = #requests
   if string.find(mode, "zipf", 1, true) then
      local sums, sum = {}, 0
      for rank = 1, count do
         sum = sum + 1 / rank
         sums[rank] = sum
      end
      for number = 1, 4 * count do
         local wanted = math.random() * sum
         local low, high = 1, count
         while low < high do
            local middle = math.floor((low + high) / 2)
            if sums[middle] < wanted then
               low = middle + 1
            else
               high = middle
            end
         end
         order[number] = low
      end
   elseif string.find(mode, "sequential", 1, true) then
      for number = 1, count do
         order[number] = number
      end
   else
      for number = 1, 4 * count do
         order[number] = math.random(count)
      end
   end
end

function request()
   place = place % #order + 1
   return requests[order[place]]
end

function done(summary)
   local errors = summary.errors
   io.write(string.format("BENCH %d %d %d\n", summary.requests, summary.duration,
      errors.connect + errors.read + errors.write + errors.timeout + errors.status))
end
