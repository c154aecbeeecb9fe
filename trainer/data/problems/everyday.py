"""Situations of the embedded task that happen to one person. Only words; see situations.py."""

EVERYDAY = """
apples
start: {N} picks {n} apples / {N} has {n} apples
product: {N} fills {a} baskets with {b} apples each / {N} has {a} bags of {b} apples
sum: {N} has {a} red and {b} green apples / {N} picks {a} apples, then {b} more
add: {he} picks {n} more / a friend gives {him} {n} apples / {he} finds {n} on the ground
sub: {he} eats {n} / {n} of them are rotten / {he} gives {n} to the neighbours
mul: by autumn {he} has {x} as many / the number of apples {doubles}
div: {he} packs them into {k} equal boxes and keeps one
 / {he} shares them with friends in {k} equal parts and takes one
half: half of them go into a pie / {he} sells half
aside: the tree is {n} years old
ask: How many apples does {N} have now? / How many apples are left?

savings
start: {N} has {n} dollars / {N} has saved {n} dollars
product: {N} saves {b} dollars a week for {a} weeks / {N} has {a} jars with {b} dollars in each
sum: {N} has {a} dollars at home and {b} in the bank / {N} earns {a} dollars and then {b} dollars
add: {he} earns {n} dollars / {his} aunt gives {him} {n} dollars / {he} finds {n} dollars in a coat
sub: {he} spends {n} dollars / {he} pays {n} dollars for a book / {he} lends a friend {n} dollars
mul: {his} savings grow to {x} the amount / the money {doubles}
div: {he} splits the money into {k} equal parts and keeps one / {he} keeps only one part in {k}
half: {he} gives half away / {he} spends half of it
aside: {N} is {n} years old
ask: How much money does {N} have now? / How many dollars does {N} end up with?

cookies
start: {N} bakes {n} cookies / {N} makes {n} cookies
product: {N} bakes {a} trays of {b} cookies / {N} fills {a} tins with {b} cookies each
sum: {N} bakes {a} oat cookies and {b} nut cookies / {N} bakes {a} cookies and buys {b}
add: {he} bakes {n} more / {his} sister brings {n} cookies / another {n} come out of the oven
sub: {n} get burnt / the children eat {n} / {he} gives away {n}
mul: {he} bakes until there are {x} as many / the pile of cookies {doubles}
div: {he} puts them on {k} equal plates and takes one plate
 / they are shared by {k} people, {N} among them
half: the dog eats half / half of them are sold
aside: the oven runs for {n} minutes
ask: How many cookies does {N} have left? / How many cookies are there for {N}?

marbles
start: {N} has {n} marbles / {N} starts a game with {n} marbles
product: {N} owns {a} bags of {b} marbles / {N} buys {a} packs of {b} marbles
sum: {N} has {a} blue marbles and {b} red ones / {N} has {a} marbles and gets {b}
add: {he} wins {n} / {he} gets {n} from a friend / {he} buys {n} more
sub: {he} loses {n} / {n} roll away / {he} trades away {n}
mul: {he} plays so well that {he} has {x} as many / {his} count {doubles}
div: {he} keeps only one in {k} / {he} sorts them into {k} equal heaps and keeps one heap
half: {he} loses half of them / {he} hands half to {his} brother
aside: a game lasts {n} minutes
ask: How many marbles does {N} have now? / What is the number of marbles {N} holds?

stamps
start: {N} collects {n} stamps / {N} has an album of {n} stamps
product: {N} fills {a} pages with {b} stamps each / {N} has {a} sheets of {b} stamps
sum: {N} has {a} old stamps and {b} new ones / {N} owns {a} stamps and is sent {b}
add: {he} buys {n} stamps / {n} come in the mail / {he} swaps a coin for {n} stamps
sub: {he} sells {n} / {he} loses {n} / {n} are torn and thrown away
mul: after a fair {he} has {x} as many / {his} collection {doubles}
div: {he} splits them into {k} equal albums and keeps one / {he} keeps one stamp in {k}
half: {he} sells half of them / half get wet and are lost
aside: the album has {n} pages
ask: How many stamps does {N} have? / How many stamps are in the collection now?

reading
start: {N} reads {n} pages / {N} has read {n} pages of a book
product: {N} reads {b} pages a day for {a} days / {N} reads {a} chapters of {b} pages
sum: {N} reads {a} pages in the morning and {b} at night / {N} reads {a} pages, then {b}
add: {he} reads {n} more / {he} reads another {n} pages in bed / {n} pages follow on the bus
sub: {he} has to take {n} off for pictures / {n} of the pages were blank
 / {he} does not count {n} of them
mul: by summer {he} has read {x} as many / {his} total {doubles}
div: only one page in {k} counts / {he} finds that just one part in {k} was new
half: half of the pages do not count / only half was new
aside: the book costs {n} dollars
ask: How many pages count now? / What is the total of pages for {N}?

running
start: {N} runs {n} kilometres / {N} plans to run {n} kilometres
product: {N} runs {b} kilometres on each of {a} days / {N} runs {a} laps of {b} kilometres
sum: {N} runs {a} kilometres and walks {b} / {N} plans {a} kilometres on roads and {b} on trails
add: {he} adds {n} kilometres / {he} goes {n} kilometres further / a detour adds {n}
sub: {he} cuts {n} kilometres / a shortcut saves {n} / {he} skips {n} because of rain
mul: the coach makes the plan {x} as long / the distance {doubles}
div: {he} divides it over {k} days and looks at one day / the coach cuts it to one part in {k}
half: {he} does only half of it / the plan is cut by half
aside: {his} shoes cost {n} dollars
ask: How many kilometres is that? / How far does {N} go in the end?

garden
start: {N} plants {n} tulips / {N} grows {n} tulips
product: {N} plants {a} rows of {b} tulips / {N} sets {b} tulips in each of {a} beds
sum: {N} plants {a} red tulips and {b} white ones / {N} has {a} tulips in front and {b} behind
add: {he} plants {n} more / {n} new ones come up / a neighbour brings {n} bulbs that bloom
sub: frost kills {n} / {he} cuts {n} for a vase / snails eat {n}
mul: next spring there are {x} as many / the tulips spread and their number {doubles}
div: {he} keeps one bed out of {k} equal beds / drought leaves one in {k}
half: deer eat half / half of them wither
aside: the fence is {n} metres long
ask: How many tulips are in the garden now? / How many tulips does {N} have?

eggs
start: {N} gathers {n} eggs / {N} has {n} eggs
product: {N} gathers {b} eggs a day for {a} days / {N} has {a} cartons of {b} eggs
sum: {N} gathers {a} brown eggs and {b} white eggs / {N} finds {a} eggs, then {b}
add: the hens lay {n} more / {he} buys {n} / a farmer brings {n}
sub: {n} of them break / {he} uses {n} for a cake / {he} sells {n}
mul: with new hens {he} soon has {x} as many / the stock of eggs {doubles}
div: {he} packs {k} equal crates and keeps one crate / {he} sells all but one in {k}
half: {he} sells half of them / half go bad
aside: {he} has {n} hens
ask: How many eggs does {N} have left? / How many eggs remain?

beads
start: {N} has {n} beads / {N} buys {n} beads
product: {N} threads {a} strings of {b} beads / {N} opens {a} boxes of {b} beads
sum: {N} has {a} glass beads and {b} wooden ones / {N} takes {a} beads and {b} beads
add: {he} adds {n} / {he} finds {n} in a drawer / {his} mother gives {him} {n}
sub: {he} drops {n} / {he} uses {n} for a ring / {n} turn out to be cracked
mul: {he} orders more and has {x} as many / the number of beads {doubles}
div: {he} makes {k} equal chains and keeps one / {he} uses them up except one in {k}
half: {he} gives half to a friend / half are used for a gift
aside: the string is {n} centimetres long
ask: How many beads does {N} have now? / How many beads are left?

points
start: {N} scores {n} points / {N} begins with {n} points
product: {N} scores {b} points in each of {a} rounds / {N} hits {a} targets worth {b} points each
sum: {N} scores {a} points and then {b} / {N} gets {a} points for speed and {b} for style
add: {he} wins {n} points / a bonus gives {n} / {he} picks up {n} points
sub: {he} loses {n} points / a foul costs {n} / the judge takes off {n}
mul: a lucky card makes it {x} as many / {his} score {doubles}
div: a trap leaves {him} one part in {k} / the score is divided by {k}
half: {he} loses half of the score / the score is halved
aside: the game has {n} players
ask: What is the score of {N}? / How many points does {N} have at the end?

photos
start: {N} takes {n} photos / {N} has {n} photos on a phone
product: {N} takes {b} photos on each of {a} days / {N} fills {a} albums with {b} photos
sum: {N} takes {a} photos of birds and {b} of trees / {N} takes {a} photos and is sent {b}
add: {he} takes {n} more / {he} gets {n} from a friend / {he} copies {n} from a disk
sub: {he} deletes {n} / {n} are blurred and go / {he} removes {n}
mul: after a trip there are {x} as many / the number of photos {doubles}
div: {he} keeps one photo in {k} / {he} sorts them into {k} equal folders and opens one
half: {he} deletes half / half of them are lost
aside: the phone is {n} months old
ask: How many photos are there now? / How many photos does {N} have?

candles
start: {N} makes {n} candles / {N} has {n} candles
product: {N} pours {a} sets of {b} candles / {N} makes {b} candles an hour for {a} hours
sum: {N} makes {a} tall candles and {b} short ones / {N} has {a} candles and makes {b}
add: {he} makes {n} more / {he} gets {n} back from a shop / {he} buys {n}
sub: {he} sells {n} / {he} burns {n} / {n} melt in the sun
mul: for the fair {he} needs {x} as many and makes them / the stock {doubles}
div: {he} packs {k} equal boxes and is left with one box / {he} sells all but one in {k}
half: {he} sells half of them / half melt
aside: a candle burns for {n} hours
ask: How many candles does {N} have? / How many candles are left over?

homework
start: {N} has {n} sums to do / the teacher gives {N} {n} sums
product: {N} has {a} sheets of {b} sums / {N} must do {b} sums on each of {a} days
sum: {N} has {a} easy sums and {b} hard ones / {N} gets {a} sums, then {b}
add: the teacher adds {n} / {he} is given {n} more / {n} come from last week
sub: {he} solves {n} / {he} finishes {n} on the bus / {n} are dropped
mul: for talking {he} gets {x} as many / the list {doubles}
div: {he} works in a team of {k} that shares them equally / only one in {k} has to be done
half: {he} solves half of them / half are called off
aside: the lesson lasts {n} minutes
ask: How many sums does {N} still have to do? / How many sums are left for {N}?
"""
