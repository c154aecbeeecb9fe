"""Situations of the embedded task about places and things. Only words; see situations.py."""

PLACES = """
bus
start: a bus leaves with {n} people / there are {n} people on a bus
product: {a} vans bring {b} people each to a bus / {b} people get on at each of {a} stops
sum: a bus carries {a} adults and {b} children / {a} people board a bus, then {b}
add: {n} get on / {n} more climb in at the school / {n} people join at the market
sub: {n} get off / {n} leave at the station / {n} step out
mul: a longer bus takes over and carries {x} as many / at the stadium the number of people {doubles}
div: they split evenly over {k} buses and we follow one / one in {k} stays on
half: half of them get off / half leave at the bridge
aside: a ticket costs {n} dollars
ask: How many people are on the bus? / How many people ride on?

library
start: a library has {n} books on a shelf / a shelf holds {n} books
product: a library has {a} shelves of {b} books / {a} boxes of {b} books reach a library
sum: a library has {a} novels and {b} atlases / a shelf holds {a} thick and {b} thin books
add: {n} are returned / the library buys {n} / a reader donates {n}
sub: {n} are lent out / {n} are lost / the staff discard {n}
mul: a donor makes it {x} as many / the stock of books {doubles}
div: they go to {k} rooms in equal parts and we count one room / one in {k} is kept
half: half of them are lent out / half are sold
aside: the library opens at {n}
ask: How many books are there now? / How many books remain?

tank
start: a tank holds {n} litres / there are {n} litres of water in a tank
product: {a} buckets of {b} litres fill a tank
 / a pump puts {b} litres a minute into a tank for {a} minutes
sum: {a} litres of cold and {b} of warm water fill a tank / a tank gets {a} litres and then {b}
add: {n} litres are poured in / rain adds {n} litres / a pipe brings {n} litres
sub: {n} litres leak out / {n} litres are used / the cows drink {n} litres
mul: a storm brings it to {x} the amount / the water {doubles}
div: it is shared by {k} equal tubs and we keep one / only one part in {k} stays
half: half of the water dries up / half is drained
aside: the tank is {n} years old
ask: How many litres are in the tank? / How much water is left?

parking
start: there are {n} cars in a car park / a car park starts the day with {n} cars
product: a car park has {a} rows of {b} cars / {b} cars an hour enter a car park for {a} hours
sum: a car park holds {a} cars and {b} vans / {a} cars enter a car park, then {b}
add: {n} drive in / {n} more arrive / {n} come for a concert
sub: {n} drive off / {n} leave before noon / {n} are towed away
mul: in the evening there are {x} as many / the number of cars {doubles}
div: they are spread over {k} equal levels and we look at one / one in {k} stays overnight
half: half of them leave / half drive away
aside: parking costs {n} dollars a day
ask: How many cars are parked now? / How many cars are there in the end?

factory
start: a factory makes {n} toys / a factory has {n} toys in stock
product: a factory makes {b} toys an hour for {a} hours / {a} machines make {b} toys each
sum: a factory makes {a} trucks and {b} dolls / a factory makes {a} toys by day and {b} by night
add: it makes {n} more / the night shift adds {n} / {n} come from another plant
sub: {n} are broken / {n} are shipped / a check rejects {n}
mul: a new machine makes it {x} as many / the output {doubles}
div: they are loaded on {k} trucks equally and one truck stays / one in {k} is kept
half: half of them are shipped / half fail a test
aside: the factory has {n} workers
ask: How many toys are left at the factory? / How many toys are there now?

pond
start: {n} fish live in a pond / a pond has {n} fish
product: {a} tanks of {b} fish are put in a pond / a pond gets {b} fish a month for {a} months
sum: a pond has {a} carp and {b} trout / {a} fish live in a pond and {b} are added
add: {n} are born / {n} swim in from the river / a ranger adds {n}
sub: {n} are caught / a heron eats {n} / {n} swim away
mul: a year later there are {x} as many / the number of fish {doubles}
div: a drought leaves one in {k} / they are moved to {k} equal ponds and we watch one
half: half of them die / half are caught
aside: the pond is {n} metres wide
ask: How many fish are in the pond? / How many fish are there now?

bakery
start: a bakery has {n} rolls / a baker makes {n} rolls
product: a baker makes {a} trays of {b} rolls / a bakery bakes {b} rolls an hour for {a} hours
sum: a bakery has {a} sweet rolls and {b} plain ones / a baker makes {a} rolls and then {b}
add: {n} more are baked / {n} come from the other shop / the baker adds {n}
sub: {n} are sold / {n} are dropped / a school takes {n}
mul: for the feast the baker makes it {x} as many / the number of rolls {doubles}
div: they are packed in {k} equal crates and one crate stays / all but one in {k} are sold
half: half of them are sold / half go to a cafe
aside: a roll costs {n} cents
ask: How many rolls are left? / How many rolls does the bakery have?

train
start: a train carries {n} passengers / there are {n} passengers on a train
product: a train has {a} cars with {b} passengers each / {b} passengers board at each of {a} stations
sum: a train carries {a} tourists and {b} workers / {a} passengers board a train, then {b}
add: {n} board in the next town / {n} more get in / {n} change over from another train
sub: {n} get out / {n} leave at the coast / {n} step off
mul: at the capital it fills to {x} as many / the number of passengers {doubles}
div: one in {k} goes on / they fill {k} cars equally and we count one car
half: half of them get out / half leave at the border
aside: the train has {n} windows
ask: How many passengers are on the train? / How many passengers travel on?

warehouse
start: a warehouse stores {n} boxes / {n} boxes stand in a warehouse
product: a warehouse has {a} stacks of {b} boxes / {a} trucks bring {b} boxes each to a warehouse
sum: a warehouse stores {a} large and {b} small boxes / {a} boxes and {b} crates come to a warehouse
add: {n} are delivered / a truck brings {n} / {n} more arrive by rail
sub: {n} are sent out / {n} are damaged / a shop collects {n}
mul: before the sales there are {x} as many / the stock {doubles}
div: they go to {k} shops in equal parts and we follow one / one in {k} is left
half: half of them are sent out / half are moved away
aside: the gate is {n} metres high
ask: How many boxes is that now? / How many boxes remain?

herd
start: a farm has {n} sheep / a shepherd leads {n} sheep
product: a farm has {a} fields with {b} sheep each / a shepherd buys {a} flocks of {b} sheep
sum: a farm has {a} white and {b} black sheep / a shepherd has {a} sheep and {b} lambs
add: {n} lambs are born / {n} are bought / {n} join from another farm
sub: {n} run off / {n} are sold / wolves take {n}
mul: in some years there are {x} as many / the flock {doubles}
div: heirs split them into {k} equal flocks and we see one / one in {k} is kept
half: half of them are sold / half stray
aside: the barn is {n} years old
ask: How many sheep are there? / How many sheep does the flock have now?

website
start: a website has {n} users / a new app has {n} users
product: an app gains {b} users a day for {a} days / {a} schools bring {b} users each to an app
sum: an app has {a} free users and {b} paying ones / {a} users join an app, then {b}
add: {n} sign up / {n} more join / an advert brings {n}
sub: {n} quit / {n} are banned / {n} delete it
mul: a video brings it to {x} as many / the number of users {doubles}
div: after a fault one in {k} stays / they are split into {k} equal groups and we take one
half: half of them quit / half leave
aside: the app costs {n} dollars
ask: How many users are there now? / How many users does it have?

bricks
start: a wall has {n} bricks / a mason lays {n} bricks
product: a wall has {a} rows of {b} bricks / a mason lays {b} bricks an hour for {a} hours
sum: a wall has {a} red bricks and {b} grey ones / a mason lays {a} bricks, then {b}
add: {n} are laid on top / the mason adds {n} / a helper lays {n}
sub: {n} fall off / {n} are removed for a window / the mason takes out {n}
mul: the plan asks for {x} as many and it is built / the number of bricks {doubles}
div: it is cut into {k} equal walls and we keep one / one brick in {k} stays
half: half of it comes down / half are taken away
aside: the wall is {n} metres long
ask: How many bricks are in the wall? / How many bricks is that?

hotel
start: a hotel has {n} guests / {n} guests stay at a hotel
product: {a} floors of a hotel have {b} guests each / {a} coaches bring {b} guests each to a hotel
sum: a hotel has {a} guests upstairs and {b} downstairs / {a} guests come to a hotel, then {b}
add: {n} check in / {n} more arrive / a wedding brings {n}
sub: {n} check out / {n} go home / {n} leave early
mul: in high season there are {x} as many / the number of guests {doubles}
div: one in {k} stays on / they sit at {k} equal tables and we count one table
half: half of them check out / half go home
aside: a room costs {n} dollars
ask: How many guests are at the hotel? / How many guests stay now?
"""
