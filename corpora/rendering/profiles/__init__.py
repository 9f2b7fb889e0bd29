"""What lies between a mouth and a wire: speed and pitch, the room, noise, the channel with its losses, and damage.

`profile` says what is asked for, `words` reads it from flags and files, and each other module does one thing to
samples. Every stage keeps the moment of each sample or says exactly how it moves it; `render` puts them in their order.
"""
