-- Hashtags in a text, for posts without the field `hashtags`: another service wrote them, with the documented fields only.
-- The same rules as hashtags.py, for the scripts that Lua can handle: it lower-cases Latin, Greek and Cyrillic letters.

-- Characters of two bytes with the lead byte 194 that count as letters or digits: ª ² ³ µ ¹ º ¼ ½ ¾
local LATIN_1 = {[170] = true, [178] = true, [179] = true, [181] = true, [185] = true, [186] = true, [188] = true,
  [189] = true, [190] = true}

local function is_tag_character(character)
  local lead, second = string.byte(character, 1, 2)
  if lead < 128 then return string.find(character, '^[%w_]') ~= nil end
  if lead == 194 then return LATIN_1[second] or false end
  if lead == 226 and (second == 128 or second == 129 or second >= 134) then return false end -- punctuation, symbols
  if lead == 227 and second == 128 then return false end -- CJK punctuation
  return lead < 240 or (second ~= 159) -- emoji
end

local function lower_character(character)
  local lead, second = string.byte(character, 1, 2)
  if lead < 128 then return string.lower(character) end
  if lead == 195 and second >= 128 and second <= 158 and second ~= 151 then return string.char(195, second + 32) end
  if lead == 196 or lead == 197 then
    local code = (lead - 192) * 64 + second - 128
    local odd_is_upper = (code >= 0x139 and code <= 0x148) or (code >= 0x179 and code <= 0x17E)
    if code ~= 0x138 and code ~= 0x149 and code < 0x17F and code ~= 0x178 and (code % 2 == 1) == odd_is_upper then
      code = code + 1
      return string.char(192 + math.floor(code / 64), 128 + code % 64)
    end
  end
  if lead == 206 and second >= 145 and second <= 159 then return string.char(206, second + 32) end
  if lead == 206 and second >= 160 and second <= 169 then return string.char(207, second - 32) end
  if lead == 208 and second >= 144 and second <= 159 then return string.char(208, second + 32) end
  if lead == 208 and second >= 160 and second <= 175 then return string.char(209, second - 32) end
  if lead == 208 and second >= 128 and second <= 143 then return string.char(209, second + 16) end
  return character
end

local function split(joined)
  local parts = {}
  for part in string.gmatch(joined or '', '[^,]+') do parts[#parts + 1] = part end
  return parts
end

-- Returns the tags in a text, in order, each once. A `#` inside a word or a URL starts no tag.
local function tags_in(content)
  local tags, seen, tag, length, before = {}, {}, nil, 0, ' '
  local function finish()
    if tag and length > 0 and length <= MAX_TAG_CHARACTERS and not seen[tag] and #tags < MAX_TAGS then
      seen[tag] = true
      tags[#tags + 1] = tag
    end
    tag, length = nil, 0
  end
  for character in string.gmatch(content or '', '[%z\1-\127\194-\244][\128-\191]*') do
    if character == '#' then
      finish()
      if not is_tag_character(before) and not string.find(before, '^[/&#]') then tag = '' end
    elseif tag and is_tag_character(character) then
      tag, length = tag .. lower_character(character), length + 1
    elseif tag then
      finish()
    end
    before = character
  end
  finish()
  return tags
end

-- Returns the tags of a post from its field `hashtags`; without the field, those of its text.
local function tags_from(post, hashtags)
  return hashtags and split(hashtags) or tags_in(redis.call('HGET', post, 'content'))
end

local function tags_of(post) return tags_from(post, redis.call('HGET', post, 'hashtags')) end
